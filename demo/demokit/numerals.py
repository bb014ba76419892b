"""Numbers in words."""

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
CHINESE_DIGITS = "零一二三四五六七八九"


def english(value: int, between: str = "-") -> str:
    """`value` (0 to 999) in English words; `between` joins tens and ones."""
    if value >= 100:
        rest = "" if value % 100 == 0 else " and " + english(value % 100, between)
        return f"{ONES[value // 100]} hundred{rest}"
    if value < 20:
        return ONES[value]
    return TENS[value // 10 - 2] + (between + ONES[value % 10] if value % 10 else "")


def chinese(value: int) -> str:
    """`value` (0 to 99) in Chinese numerals."""
    if value < 10:
        return CHINESE_DIGITS[value]
    tens = "" if value < 20 else CHINESE_DIGITS[value // 10]
    return tens + "十" + (CHINESE_DIGITS[value % 10] if value % 10 else "")
