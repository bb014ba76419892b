"""Words that items are made of. None of these is a token of the vocabulary, so they are copied letter by letter."""

from random import Random

COMMON = (
    "cat dog sun moon tree fish bird house water light green apple stone river cloud bread chair table music paper "
    "horse sheep mouse tiger lemon grape peach plant ocean beach storm night happy quick small sweet sharp clean "
    "dream heart smile world train plane truck robot metal glass wood fire snow rain wind leaf seed root hello "
    "banana orange garden window silver yellow purple flower winter summer spring doctor school coffee cheese butter "
    "rocket planet python kernel server engine market bridge castle forest island desert dragon monkey rabbit turtle "
    "spider guitar violin camera pencil basket button candle carpet mirror pillow bottle hammer ladder magnet needle"
).split()
NAMES = (
    "Alice Bob Carol David Emma Frank Grace Henry Ivy Jack Kate Leo Mia Noah Olivia Paul Quinn Rose Sam Tina Uma "
    "Victor Wendy Xavier Yara Zoe Tom Anna Ben Lisa Max Nina Peter Sara Mary John"
).split()
CITIES = (
    "Paris London Berlin Tokyo Rome Madrid Oslo Cairo Delhi Lima Seoul Boston Dublin Vienna Prague Beijing Shanghai "
    "Sydney Chicago Toronto Lisbon Athens Munich Zurich Milan Dallas Hanoi Osaka"
).split()
COLORS = "red blue green black white pink orange brown gray yellow".split()
OBJECTS = (
    "apples books coins cards eggs pens cups stamps balls cookies oranges tickets stones fish boxes flowers birds "
    "marbles candies dollars points pages toys shells bottles stickers cars pencils"
).split()
CHINESE_NAMES = "小明 小红 小李 王芳 李雷 张伟 刘洋 陈静".split()
CHINESE_CITIES = "北京 上海 广州 深圳 杭州 成都 南京 武汉".split()
CHINESE_COLORS = "红 蓝 绿 黑 白".split()
CHINESE_OBJECTS = "个苹果 本书 支笔 张票 个球 块糖".split()


def is_content(word: str) -> bool:
    """Whether `word` (any case) is on one of the lists above, so that no token may hold it whole."""
    return word.lower() in _CONTENT


_CONTENT = frozenset(w.lower() for w in [*COMMON, *NAMES, *CITIES, *COLORS, *OBJECTS])


def made_up(rng: Random, low: int = 3, high: int = 8) -> str:
    """A lower-case letter string of `low` to `high` letters: half of them speakable."""
    length = rng.randint(low, high)
    if rng.random() < 0.4:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length))
    is_consonant = rng.random() < 0.7
    letters = []
    for _ in range(length):
        letters.append(rng.choice("bcdfghjklmnpqrstvwxyz" if is_consonant else "aeiou"))
        is_consonant = not is_consonant
    return "".join(letters)


def word(rng: Random, high: int = 8) -> str:
    """A lower-case word to work on: from the list or made up."""
    if rng.random() < 0.35:
        listed = rng.choice(COMMON)
        if len(listed) <= high:
            return listed
    return made_up(rng, 3, high)


def person(rng: Random, is_chinese: bool = False) -> str:
    """A name of a person."""
    if is_chinese:
        return rng.choice(CHINESE_NAMES)
    return rng.choice(NAMES) if rng.random() < 0.5 else made_up(rng, 3, 6).capitalize()


def city(rng: Random, is_chinese: bool = False) -> str:
    """A name of a city."""
    if is_chinese:
        return rng.choice(CHINESE_CITIES)
    return rng.choice(CITIES) if rng.random() < 0.5 else made_up(rng, 4, 7).capitalize()


def thing(rng: Random) -> str:
    """A countable thing in the plural."""
    return rng.choice(OBJECTS) if rng.random() < 0.6 else made_up(rng, 3, 6) + "s"
