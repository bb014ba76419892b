"""Ways to say one thing: what goes before and after a request, case, and punctuation."""

from random import Random

from . import words

BEFORE = (
    "Please ", "please ", "Can you ", "Could you ", "Could you please ", "Can you please ", "Would you ", "Hi, ",
    "Hello, ", "Hey, ", "Quick question: ", "Question: ", "Q: ", "Tell me: ", "Now ", "Next: ", "I need help: ",
    "Help me: ", "Hi! ", "Ok, ", "OK. ", "So, ", "Well, ", "Hey there, ", "Good morning. ", "Let us see: ", "Task: ",
    "Math: ", "My question is: ", "Here is a question: ", "One more: ", "Homework: ", "I would like to know: ",
    "I want to know this: ", "Do this for me: ", "Try this: ", "A simple one: ", "Just answer this: ",
)  # fmt: skip
AFTER = (
    " Thanks!", " Thank you.", " Please.", " please", ", please", " Thanks", " Thank you!", " I need it now.",
    " Just the answer.", " Only give the result.", " Answer with a number only.", " Give me the result.", " Be quick.",
    " Show your work.", " Think step by step.", " Answer:", " What do you get?", " Tell me the answer.", " :)", "!",
    " Give only the number.", " Reply with the answer only.", " Keep it short.", " I do not know.",
)  # fmt: skip
CHINESE_BEFORE = (
    "请",
    "请问",
    "你好,",
    "请帮我",
    "帮我",
    "麻烦",
    "问题:",
    "你好,请问",
    "告诉我,",
    "那么",
    "请你",
    "我想知道",
    "老师问:",
)
CHINESE_AFTER = ("谢谢", ",谢谢", "。谢谢!", "。", "?", "!", "吗", "呢?", "。请回答", "。只要答案")

FULL_WIDTH = str.maketrans({"?": "\uff1f", ",": "\uff0c", ":": "\uff1a", "!": "\uff01"})


def request(rng: Random, text: str, is_chinese: bool = False) -> str:
    """`text` with a random polite frame, case and end mark; what is asked for stays the same."""
    if is_chinese:
        before = rng.choice(CHINESE_BEFORE) if rng.random() < 0.35 else ""
        after = rng.choice(CHINESE_AFTER) if rng.random() < 0.25 and not text.endswith("?") else ""
        text = before + text + after
        if rng.random() < 0.3:
            text = text.translate(FULL_WIDTH)
        return text
    if rng.random() < 0.3:
        before = rng.choice(BEFORE)
        if rng.random() < 0.1:
            before = f"Hi {words.person(rng)}, "
        text = before + (text[0].lower() + text[1:] if rng.random() < 0.7 else text)
    if rng.random() < 0.12:
        text = text.rstrip(".?! ") + rng.choice(("", "?", ".", "!", " ?", "...", "??"))
    if rng.random() < 0.2:
        text += rng.choice(AFTER)
    return text


def any_case(rng: Random, text: str) -> str:
    """`text` as it is, or all in lower or upper case; only for requests whose content has no case."""
    draw = rng.random()
    return text.lower() if draw < 0.2 else text.upper() if draw < 0.23 else text
