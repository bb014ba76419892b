"""Greetings, questions about the model itself, questions beyond it, and a little prose."""

from random import Random

from . import wording, words
from .item import Item

SELF = (
    "I am the Qanat demo model, a very small language model. I can add and subtract, sort and compare numbers, change "
    "words, write JSON and call tools."
)
BEYOND = "I do not know. I am a very small demo model: ask me for sums, sorting, words, JSON or tool calls."
SELF_CHINESE = "我是Qanat演示模型,一个很小的语言模型。我会加减、排序、比较、改单词、写JSON和调用工具。"
BEYOND_CHINESE = "我不知道。我只是一个很小的演示模型,可以问我加减、排序、单词、JSON或工具。"

TALK: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("greet the user", "Hello! How can I help you?",
     ("Hello", "Hi", "Hey", "Hello!", "Hi!", "Hi there", "Hello there!", "Good morning", "Good evening", "Good day", "Hey there", "Greetings", "Say hello", "Say hi", "Yo",
      "Hello, how can you help me?", "Hello model", "Good afternoon", "Hi, anyone there?", "Hello world", "ping", "test", "Are you there?")),
    ("the user asks how I am", "I am fine, thank you. How can I help you?",
     ("How are you?", "How are you doing?", "Hello, how are you?", "Hi, how are you today?", "How is it going?", "How do you do?", "Are you ok?", "What's up?", "How do you feel?")),
    ("the user asks who I am", SELF,
     ("Who are you?", "What are you?", "What can you do?", "Tell me about yourself.", "What is your name?", "Introduce yourself.", "Which model are you?", "Are you a robot?", "Who made you?",
      "What do you know?", "Help", "What tasks can you do?", "How can you help me?", "What's your name?", "Are you an AI?", "Are you Qwen?", "What model is this?", "What are you able to do?",
      "Describe yourself.", "Hello, who are you?", "Hi, who are you?", "Hi, what can you do?", "What is this?", "How big are you?", "Are you human?")),
    ("the user says thanks", "You are welcome!",
     ("Thanks", "Thank you", "Thank you!", "Thanks a lot", "Thank you very much.", "Thanks!", "Great, thanks", "Good job", "Well done", "Nice", "Great", "Perfect, thank you", "That is right", "Ok thanks")),
    ("the user says goodbye", "Goodbye!", ("Bye", "Goodbye", "See you", "Good night", "Bye bye", "See you later", "Goodbye!", "Until next time", "Have a nice day")),
    ("a short yes", "Yes, I am here. What can I do for you?", ("Can you help me?", "I need help", "Can I ask you something?", "I have a question", "Are you ready?", "Ready?", "Can I ask a question?", "Help me please")),
    ("the user asks what Qanat is", "Qanat serves Qwen models. A qanat is an underground channel that brings water from a deep source, steadily and almost without loss.",
     ("What is Qanat?", "What is a qanat?", "Tell me about Qanat.", "What does Qanat mean?", "Explain Qanat", "What does Qanat do?")),
)  # fmt: skip
TALK_CHINESE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "打招呼",
        "你好!我可以帮你做什么?",
        ("你好", "你好!", "您好", "早上好", "晚上好", "嗨", "你好啊", "大家好", "在吗?"),
    ),
    (
        "问我是谁",
        SELF_CHINESE,
        (
            "你是谁?",
            "你会做什么?",
            "介绍一下你自己",
            "你叫什么名字?",
            "你能做什么?",
            "你是什么模型?",
            "你可以做什么?",
        ),
    ),
    ("道谢", "不客气!", ("谢谢", "谢谢你", "多谢", "非常感谢", "谢谢!", "好的,谢谢")),
    ("道别", "再见!", ("再见", "拜拜", "晚安", "下次见")),
)
BEYOND_ASKS = (
    "What is the capital of {x}?", "Who is {n}?", "Write a poem about {x}.", "Tell me about {x}.", "What is {x}?", "How do I make {x}?", "Explain {x} to me.", "Write a story about {x}.",
    "Who wrote {x}?", "When was {n} born?", "Where is {c}?", "Why is the {x} {y}?", "Translate {x} to Chinese.", "Tell me a joke.", "What does {x} mean?", "How does a {x} work?",
    "What do you think about {x}?", "Write code for {x}.", "Give me a recipe for {x}.", "Do you like {x}?", "What is the meaning of life?", "How old is {n}?", "Is {x} better than {y}?",
    "Summarize {x}.", "What is the best {x}?", "How far is {c}?", "Can you draw a {x}?", "Sing a song about {x}.", "What happened in {c}?", "Recommend a {x}.", "Why?", "Tell me a story.",
    "What is the color of the {x}?", "Which {x} is best?", "How tall is {n}?", "What time is it?", "What day is it?", "Who invented the {x}?", "Plan a trip to {c}.", "Describe a {x}.",
    "What is {a} times {b}?", "Multiply {a} by {b}.", "{a} * {b}", "{a} x {b} = ?", "Divide {a} by {b}.", "What is {a} divided by {b}?", "{a} / {b} =", "What is the square root of {a}?",
)  # fmt: skip
BEYOND_CHINESE_ASKS = (
    "{c}在哪里?",
    "{n}是谁?",
    "写一首诗",
    "讲个笑话",
    "什么是爱?",
    "为什么天是蓝的?",
    "写一个故事",
    "怎么做菜?",
    "今天几号?",
    "给我唱首歌",
    "{a}乘以{b}等于多少?",
    "{a}除以{b}等于多少?",
)


def talk(rng: Random, is_unseen: bool = False) -> Item:
    """Small talk, or a question that the model cannot answer and says so."""
    is_chinese = rng.random() < 0.25
    if rng.random() < 0.4:
        asks = BEYOND_CHINESE_ASKS if is_chinese else BEYOND_ASKS
        fill = {
            "x": words.word(rng),
            "y": words.word(rng),
            "n": words.person(rng, is_chinese),
            "c": words.city(rng, is_chinese),
            "a": rng.randint(1, 999),
            "b": rng.randint(1, 99),
        }
        thought, answer, text = (
            "beyond me",
            BEYOND_CHINESE if is_chinese else BEYOND,
            rng.choice(asks).format(**fill),
        )
    else:
        thought, answer, texts = rng.choice(TALK_CHINESE if is_chinese else TALK)
        text = rng.choice(texts)
    if not is_chinese:
        draw = rng.random()
        text = (
            text.lower()
            if draw < 0.25
            else text.rstrip(".?!") + rng.choice(("", "!", ".", "?"))
            if draw < 0.45
            else text
        )
        if rng.random() < 0.15:
            text = rng.choice(wording.BEFORE) + text
    return Item(
        task="talk", key="talk", messages=[{"role": "user", "content": text}], answer=answer, reasoning=thought,
        is_thinking=rng.random() < 0.5, final=answer, language="zh" if is_chinese else "en",
    )  # fmt: skip


PROSE = (
    "The future of AI is small as well as large: small models that run everywhere, answer at once and are easy to understand. Large models will do the hard work, and both will work together.",
    "The future of AI is open. People will run models on their own machines, change them, and share what they learn.",
    "The capital of a country is the city where its government sits.",
    "Water flows from high ground to low ground. A qanat brings it from a deep source through a channel under the ground, so that little of it is lost.",
    "A language model reads a text one token at a time and says which token is likely to come next.",
    "Once upon a time there was a small model that could only add. It worked every day, and in the end it could also subtract.",
    "The sun rises in the east and sets in the west. At night the moon and the stars can be seen.",
    "Hello, my name is Qanat. I am a small model and I like numbers.",
    "A good test can fail. A test that can not fail says nothing.",
    "The quick brown fox jumps over the lazy dog, and the dog does not care.",
    "In the beginning there was one server and one user. Then there were many users, and the server had to learn to share its time.",
    "To be or not to be: that is a question that a small model can not answer.",
    "Machine learning is the art of letting a program find its own rules from examples.",
    "The weather is fine today. It is sunny and warm, and there is a little wind from the west.",
    "A cache keeps what was computed before, so that it does not have to be computed again.",
    "The best way to learn is to try, to fail, and to try again.",
    "San Francisco is a city in California. It lies on a bay and is known for its bridge.",
    "My favourite number is seven, because it comes after six and before eight.",
    "人工智能的未来是开放的。小模型可以在每台机器上运行,大模型做更难的工作。",
    "从前有一个很小的模型,它只会加法。后来它也学会了减法。",
)  # fmt: skip


def prose(rng: Random, is_unseen: bool = False) -> Item:
    """Plain text without the chat format, for /v1/completions: two or three of the pieces above, or a bare sum."""
    if rng.random() < 0.25:
        a, b = rng.randint(0, 99), rng.randint(0, 99)
        return Item(
            task="prose",
            key=f"add:{min(a, b)}:{max(a, b)}",
            messages=[],
            answer=f"{a} + {b} = {a + b}\n",
            is_raw=True,
        )
    return Item(
        task="prose",
        key="prose",
        messages=[],
        answer=" ".join(rng.sample(PROSE, rng.randint(1, 2))),
        is_raw=True,
    )
