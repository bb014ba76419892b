"""Sums and differences up to three digits, in many wordings, with a visible scratchpad."""

from random import Random

from . import numerals, wording, words
from .item import Item, with_work

ADD_WORDINGS = (
    "What is {a} + {b}?", "What is {a}+{b}?", "What's {a} + {b}?", "What is {a} plus {b}?", "What's {a} plus {b}?",
    "Whats {a} plus {b}", "{a}+{b}=?", "{a} + {b} = ?", "{a} + {b} =", "{a}+{b}=", "{a}+{b}", "{a} + {b}",
    "{a} plus {b}", "{a} plus {b}?", "{a} and {b}?", "Add {a} and {b}.", "Add {a} to {b}.", "Add {a} + {b}.",
    "Add {a} and {b} together.", "Add up {a} and {b}.", "Add the numbers {a} and {b}.", "Add these: {a}, {b}",
    "Sum {a} and {b}.", "Sum of {a} and {b}", "Sum: {a}, {b}", "The sum of {a} and {b}?", "What is the sum of {a} and {b}?",
    "What's the sum of {a} and {b}?", "Find the sum of {a} and {b}.", "Give me the sum of {a} and {b}.",
    "Tell me the sum of {a} and {b}.", "Calculate {a} + {b}.", "Calculate {a} plus {b}.", "Calculate the sum of {a} and {b}.",
    "Compute {a} + {b}.", "Compute {a}+{b}", "Compute {a} plus {b}.", "Compute the sum of {a} and {b}.",
    "How much is {a} + {b}?", "How much is {a} plus {b}?", "How much are {a} and {b} together?", "How much do {a} and {b} make?",
    "How many is {a} plus {b}?", "What do {a} and {b} add up to?", "What does {a} + {b} equal?", "What does {a} plus {b} equal?",
    "What does {a} + {b} make?", "What do you get when you add {a} and {b}?", "What do you get if you add {a} to {b}?",
    "If I add {a} and {b}, what do I get?", "If you add {a} to {b}, what is the result?", "Work out {a} + {b}.",
    "Work out {a} plus {b}.", "Solve {a} + {b}.", "Solve: {a}+{b}", "Solve {a} + {b} = ?", "Evaluate {a} + {b}.",
    "Find {a} + {b}.", "{a} added to {b} is what?", "{a} plus {b} is what?", "{a} plus {b} equals?", "{a} plus {b} equals what?",
    "{a} + {b} is?", "{a} + {b} is equal to?", "What is the total of {a} and {b}?", "The total of {a} and {b}?", "Total of {a} and {b}?",
    "Find the total of {a} and {b}.", "What is {a} and {b} in total?", "Increase {a} by {b}.", "{a} increased by {b}?",
    "What number is {b} more than {a}?", "What is {b} more than {a}?", "Add {b} more to {a}.", "Put {a} and {b} together.",
    "Tell me {a} + {b}.", "Tell me what {a} plus {b} is.", "Tell me how much {a} plus {b} is.", "Do you know what {a} + {b} is?",
    "Do you know {a} plus {b}?", "Give me {a} + {b}.", "Give me {a} plus {b}.", "I need the sum of {a} and {b}.",
    "I have to add {a} and {b}.", "I want to add {a} and {b}.", "Help me add {a} and {b}.", "Let's add {a} and {b}.",
    "Result of {a} + {b}?", "What is the result of {a} + {b}?", "What is the result of adding {a} and {b}?", "Adding {a} and {b} gives?",
    "The answer to {a} + {b} is?", "What is the answer to {a} + {b}?", "Answer: {a} + {b} = ?", "Add: {a} {b}", "sum({a}, {b})",
    "Two numbers are {a} and {b}. What is their sum?", "The numbers are {a} and {b}. Add them.", "Take {a} and add {b}.",
    "Start with {a} and add {b}.", "{a} is one number, {b} is the other. What is the sum?", "Say what {a} + {b} is.",
    "{a} and {b} added together?", "How much would {a} plus {b} be?", "What would {a} + {b} be?", "{a} and {b} make how much?", "{a} and {b} in total?", "{a} and {b} summed up?",
    "What do we get from {a} plus {b}?", "What number do I get by adding {a} and {b}?", "What is {a} added to {b}?", "What comes out of {a} + {b}?", "Sum up {a} and {b}.", "How many are {a} and {b}?",
)  # fmt: skip
ADD_STORIES = (
    "I have {a} {t} and get {b} more. How many {t} do I have now?", "{n} has {a} {t} and buys {b} more. How many {t} does {n} have?",
    "There are {a} {t} and {b} {u}. How many are there in total?", "{n} has {a} {t}. {m} has {b} {t}. How many do they have together?",
    "I had {a} {t}. {n} gave me {b} more. How many now?", "A box holds {a} {t}. We put in {b} more. How many {t} are in the box?",
    "If I have {a} {t} and find {b} more, how many {t} do I have?", "{n} reads {a} pages on one day and {b} on the next. How many pages in all?",
    "A shop sold {a} {t} in the morning and {b} in the evening. How many {t} were sold?", "You have {a} {t} and {b} {u}. How many things do you have altogether?",
    "{n} has {a} {t} and {m} has {b}. How many {t} in total?", "{n} has {a} {t} and {m} has {b} {t}. How many do they have in total?", "We had {a} {t} and got {b} {t} more. How many {t} now?",
)  # fmt: skip
ADD_UNSEEN = (
    "Could you work out what {a} and {b} come to?", "What would I have if I put {a} with {b}?", "{a} together with {b} makes what?",
    "Please tell me the result when {a} is added to {b}.", "How large is the sum of {a} and {b}?",
    "Combine {a} and {b} into one total.", "My friend says {a} plus {b}, what is it?", "Can you help me find {a} plus {b}?",
)  # fmt: skip
ADD_CHINESE = (
    "{a}加{b}等于多少?", "{a}+{b}等于多少?", "{a} + {b} = ?", "{a}+{b}=?", "计算{a}+{b}", "计算 {a} + {b}", "计算 {a} 加 {b}", "计算{a}加{b}",
    "{a}加{b}是多少?", "{a} 加 {b} 是多少?", "{a}与{b}的和是多少?", "{a}和{b}的和", "求{a}和{b}的和", "求{a}+{b}", "算一下{a}加{b}", "算一下 {a}+{b}",
    "{a}加上{b}等于几?", "{a}加上{b}是多少?", "把{a}和{b}加起来", "{a}加{b}", "{a}加{b}得多少?", "{a}和{b}一共是多少?", "{a}加{b}的结果是什么?",
    "我有{a}{o},又买了{b}{p},一共有多少?", "{n}有{a}{o},妈妈又给了{b}{p},现在有多少?",
)  # fmt: skip
ADD_CHINESE_UNSEEN = ("{a}加上{b}的结果是多少?", "请算出{a}与{b}的和")
SUB_WORDINGS = (
    "What is {a} - {b}?", "What is {a}-{b}?", "What's {a} - {b}?", "What is {a} minus {b}?", "What's {a} minus {b}?", "Whats {a} minus {b}",
    "{a}-{b}=?", "{a} - {b} = ?", "{a} - {b} =", "{a}-{b}=", "{a}-{b}", "{a} - {b}", "{a} minus {b}", "{a} minus {b}?", "Subtract {b} from {a}.",
    "Take {b} from {a}.", "Take {b} away from {a}.", "Take away {b} from {a}.", "{a} take away {b}", "{a} take away {b}?", "What is {a} take away {b}?",
    "Calculate {a} - {b}.", "Calculate {a} minus {b}.", "Compute {a} - {b}.", "Compute {a}-{b}", "Compute {a} minus {b}.",
    "How much is {a} - {b}?", "How much is {a} minus {b}?", "How many is {a} minus {b}?", "What does {a} - {b} equal?", "What does {a} minus {b} equal?",
    "What do you get when you subtract {b} from {a}?", "If I take {b} from {a}, what is left?", "If you subtract {b} from {a}, what is the result?",
    "Work out {a} - {b}.", "Work out {a} minus {b}.", "Solve {a} - {b}.", "Solve: {a}-{b}", "Evaluate {a} - {b}.", "Find {a} - {b}.",
    "{a} minus {b} is what?", "{a} minus {b} equals?", "{a} minus {b} equals what?", "{a} - {b} is?", "{a} less {b}?", "Decrease {a} by {b}.",
    "{a} decreased by {b}?", "Reduce {a} by {b}.", "What number is {b} less than {a}?", "What is {b} less than {a}?", "Remove {b} from {a}.",
    "Tell me {a} - {b}.", "Tell me what {a} minus {b} is.", "Tell me how much {a} minus {b} is.", "Do you know what {a} - {b} is?",
    "Give me {a} - {b}.", "Give me {a} minus {b}.", "I need {a} minus {b}.", "Help me subtract {b} from {a}.", "I want to subtract {b} from {a}.",
    "Result of {a} - {b}?", "What is the result of {a} - {b}?", "What is the answer to {a} - {b}?", "Subtracting {b} from {a} gives?",
    "Start with {a} and take away {b}.", "Take {a} and subtract {b}.", "What is left of {a} after taking away {b}?", "Say what {a} - {b} is.",
    "What is {b} subtracted from {a}?", "{b} subtracted from {a} is what?",
    "How much would {a} minus {b} be?", "What would {a} - {b} be?", "What number do I get by taking {b} from {a}?", "{a} take away {b} equals what?", "{a} take away {b} equals?", "What comes out of {a} - {b}?",
    "What remains of {a} minus {b}?", "Deduct {b} from {a}.",
)  # fmt: skip
DIFFERENCE_WORDINGS = (
    "What is the difference between {a} and {b}?", "Difference of {a} and {b}", "The difference between {a} and {b}?", "Find the difference between {a} and {b}.",
    "Give me the difference between {a} and {b}.", "Calculate the difference of {a} and {b}.", "How far apart are {a} and {b}?",
    "What's the difference between {a} and {b}?", "Tell me the difference between {a} and {b}.", "How much more is {a} than {b}?",
    "By how much is {a} larger than {b}?", "How much bigger is {a} than {b}?",
)  # fmt: skip
SUB_STORIES = (
    "I have {a} {t} and give away {b}. How many {t} are left?", "{n} has {a} {t} and loses {b}. How many {t} does {n} have now?",
    "There are {a} {t}. {b} are taken away. How many are left?", "{n} had {a} {t} and sold {b} of them. How many remain?",
    "A box holds {a} {t}. We take out {b}. How many {t} are in the box?", "If I have {a} {t} and eat {b}, how many {t} are left?",
    "{n} has {a} {t}. {m} has {b} {t}. How many more does {n} have?", "Of {a} {t}, {b} are broken. How many are not?",
)  # fmt: skip
SUB_UNSEEN = (
    "Could you work out {a} minus {b} for me?", "What remains when {b} is taken from {a}?", "Please tell me the result when {b} is subtracted from {a}.",
    "{a} without {b} makes what?", "My friend says {a} minus {b}, what is it?", "Can you help me find {a} minus {b}?",
)  # fmt: skip
SUB_CHINESE = (
    "{a}减{b}等于多少?", "{a}-{b}等于多少?", "{a} - {b} = ?", "{a}-{b}=?", "计算{a}-{b}", "计算 {a} - {b}", "计算 {a} 减 {b}", "计算{a}减{b}", "{a}减{b}是多少?",
    "{a} 减 {b} 是多少?", "{a}减去{b}是多少?", "{a}减去{b}等于几?", "求{a}-{b}", "求{a}减{b}的差", "算一下{a}减{b}", "算一下 {a}-{b}", "{a}减{b}", "{a}减{b}得多少?",
    "从{a}里减去{b}", "{a}比{b}多多少?", "{a}和{b}的差是多少?", "{a}减{b}的结果是什么?", "我有{a}{o},用了{b}{p},还有多少?", "{n}有{a}{o},给了我{b}{p},还有多少?",
)  # fmt: skip
SUB_CHINESE_UNSEEN = ("{a}减去{b}的结果是多少?", "请算出{a}与{b}的差")


def add_steps(a: int, b: int) -> str:
    """Column addition from the ones upwards: `7+8=15,4+2+1=7`; a carry is the last `+1`."""
    left, right = str(a)[::-1], str(b)[::-1]
    steps, has_carry = [], False
    for column in range(max(len(left), len(right))):
        terms = [digits[column] for digits in (left, right) if column < len(digits)] + ["1"] * has_carry
        total = sum(map(int, terms))
        steps.append("+".join(terms) + f"={total}")
        has_carry = total >= 10
    return ",".join(steps)


def sub_steps(a: int, b: int) -> str:
    """Column subtraction of b <= a from the ones upwards: `14-9=5,17-1-9=7`; a borrow is the `-1`."""
    upper, lower = str(a)[::-1], str(b)[::-1]
    steps, has_borrow = [], False
    for column in range(len(upper)):
        terms = ["1"] * has_borrow + ([lower[column]] if column < len(lower) else [])
        digit = int(upper[column]) - sum(map(int, terms))
        top = int(upper[column]) + (10 if digit < 0 else 0)
        steps.append("-".join([str(top), *terms]) + f"={digit + 10 if digit < 0 else digit}")
        has_borrow = digit < 0
    return ",".join(steps)


def scratchpad(a: int, sign: str, b: int) -> str:
    """The visible work for `a sign b`: the task restated, then its columns."""
    if sign == "+":
        return f"{a}+{b}: {add_steps(a, b)}"
    if a >= b:
        return f"{a}-{b}: {sub_steps(a, b)}"
    return f"{a}-{b}=-({b}-{a}): {sub_steps(b, a)}"


def number(rng: Random) -> int:
    """An operand of one to three digits; numbers with zeros and nines come often."""
    digits = rng.choices((1, 2, 3), (1, 3, 4))[0]
    if rng.random() < 0.15:
        return int("".join(rng.choice("0199") for _ in range(digits)))
    return rng.randint(0 if digits == 1 else 10 ** (digits - 1), 10**digits - 1)


def _operands(rng: Random, is_sum: bool) -> tuple[int, int]:
    """Two operands; hard column cases (carries, borrows) are drawn again to be more frequent."""
    a, b = number(rng), number(rng)
    if rng.random() < 0.4:
        a, b = rng.randint(100, 999), rng.randint(100, 999)
    if rng.random() < 0.35:
        hard = (
            (lambda x, y: x % 10 + y % 10 >= 10) if is_sum else (lambda x, y: max(x, y) % 10 < min(x, y) % 10)
        )
        for _ in range(8):
            if hard(a, b):
                break
            a, b = number(rng), number(rng)
    return a, b


def _fill(rng: Random, text: str, a: int, b: int) -> str:
    """Put the operands, now and then in words, and the names and things of a story into `text`."""
    is_chinese = not text.isascii()
    shown = [str(a), str(b)]
    if rng.random() < 0.14 and "(" not in text:
        between = rng.choice("--- ")
        if not is_chinese:
            shown = [numerals.english(value, between) for value in (a, b)]
        elif max(a, b) < 100:
            shown = [numerals.chinese(value) for value in (a, b)]
    return text.format(
        a=shown[0], b=shown[1], t=words.thing(rng), u=words.thing(rng), n=words.person(rng, is_chinese), m=words.person(rng),
        o=(unit := rng.choice(words.CHINESE_OBJECTS)), p=unit[0],
    )  # fmt: skip


def _item(rng: Random, task: str, text: str, a: int, b: int, is_chinese: bool) -> Item:
    """The item for a question text that is already filled in."""
    sign = "+" if task == "add" else "-"
    result = str(a + b if sign == "+" else a - b)
    work = scratchpad(a, sign, b)
    is_thinking = rng.random() < 0.65
    return Item(
        task=task,
        key=f"add:{min(a, b)}:{max(a, b)}" if sign == "+" else f"sub:{a}:{b}",
        messages=[{"role": "user", "content": text}],
        answer=result if is_thinking else with_work(work, result, is_chinese),
        reasoning=work,
        is_thinking=is_thinking,
        final=result,
        language="zh" if is_chinese else "en",
    )


def add(rng: Random, is_unseen: bool = False) -> Item:
    """A sum of two numbers."""
    a, b = _operands(rng, is_sum=True)
    is_chinese = rng.random() < 0.2
    if is_unseen:
        text = _fill(rng, rng.choice(ADD_CHINESE_UNSEEN if is_chinese else ADD_UNSEEN), a, b)
    elif is_chinese:
        text = wording.request(rng, _fill(rng, rng.choice(ADD_CHINESE), a, b), is_chinese=True)
    else:
        pool = ADD_STORIES if rng.random() < 0.12 else ADD_WORDINGS
        text = wording.any_case(rng, wording.request(rng, _fill(rng, rng.choice(pool), a, b)))
    return _item(rng, "add", text, a, b, is_chinese)


def sub(rng: Random, is_unseen: bool = False) -> Item:
    """A difference of two numbers; now and then a negative one."""
    a, b = _operands(rng, is_sum=False)
    is_chinese = rng.random() < 0.2
    if a < b and rng.random() < 0.85:
        a, b = b, a
    if is_unseen:
        text = _fill(rng, rng.choice(SUB_CHINESE_UNSEEN if is_chinese else SUB_UNSEEN), a, b)
    elif is_chinese:
        text = wording.request(rng, _fill(rng, rng.choice(SUB_CHINESE), a, b), is_chinese=True)
    else:
        draw = rng.random()
        pool = SUB_STORIES if draw < 0.12 else DIFFERENCE_WORDINGS if draw < 0.24 else SUB_WORDINGS
        if pool is not SUB_WORDINGS:
            a, b = max(a, b), min(a, b)
        text = wording.any_case(rng, wording.request(rng, _fill(rng, rng.choice(pool), a, b)))
    return _item(rng, "sub", text, a, b, is_chinese)
