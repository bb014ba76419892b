"""Key-value text to one JSON object."""

import json
from random import Random
from typing import Any

from . import wording, words
from .item import Item

ASKS = (
    "Convert to JSON: {s}", "Extract as JSON: {s}", "Return JSON: {s}", "Make JSON from this: {s}", "To JSON: {s}", "JSON: {s}", "Write this as JSON: {s}",
    "Turn this into JSON: {s}", "Give me JSON for: {s}", "Format as JSON: {s}", "Convert this to JSON. {s}", "Extract the fields as JSON. {s}", "Put this into JSON: {s}",
    "{s}. Return this as JSON.", "Convert {s} to JSON.", "Convert the following to JSON:\n{s}", "Write a JSON object with {s}", "Output JSON with {s}",
    "Create JSON with {s}", "I want JSON: {s}", "Build a JSON object: {s}", "JSON object from {s}", "I need JSON with {s}", "Give me this as a JSON object: {s}", "Make a JSON object with these values: {s}",
)  # fmt: skip
UNSEEN = ("Please create a JSON object from these values: {s}", "I need the following as a JSON object: {s}")
CHINESE_ASKS = (
    "提取为JSON: {s}",
    "转成JSON: {s}",
    "把下面的内容变成JSON: {s}",
    "{s},请用JSON表示",
    "用JSON写出: {s}",
)
CHINESE_KEYS = {"name": "姓名", "age": "年龄", "city": "城市", "color": "颜色", "id": "编号"}
SENTENCES = {
    "name": "my name is {v}", "age": "I am {v} years old", "city": "I live in {v}", "color": "my color is {v}",
    "id": "my id is {v}", "price": "the price is {v}",
}  # fmt: skip


def _value(rng: Random, key: str, is_chinese: bool) -> Any:
    """A value that suits `key`."""
    if key == "name":
        return words.person(rng, is_chinese)
    if key == "city":
        return words.city(rng, is_chinese)
    if key == "color":
        return rng.choice(words.CHINESE_COLORS if is_chinese else words.COLORS)
    if key == "item":
        return words.word(rng)
    return rng.randint(10, 99) if key == "age" else rng.randint(1, 999)


def _listing(rng: Random, record: dict[str, Any]) -> str:
    """The pairs as people write them."""
    draw = rng.random()
    if draw < 0.2 and all(key in SENTENCES for key in record):
        return rng.choice((", ", " and ")).join(
            SENTENCES[key].format(v=value) for key, value in record.items()
        )
    between, mark = rng.choice(
        ((": ", ", "), ("=", ", "), (": ", "; "), (" is ", ", "), (": ", "\n"), (" ", ", "), ("=", " "))
    )
    return mark.join(f"{key}{between}{value}" for key, value in record.items())


def to_json(rng: Random, is_unseen: bool = False) -> Item:
    """Two to four pairs to write as a JSON object; numbers stay numbers."""
    is_chinese = rng.random() < 0.2 and not is_unseen
    if is_chinese:
        keys = rng.sample(list(CHINESE_KEYS), rng.randint(2, 4))
        record = {key: _value(rng, key, True) for key in keys}
        between, mark = rng.choice((("", ","), (":", ","), (": ", ", ")))
        listing = mark.join(f"{CHINESE_KEYS[key]}{between}{value}" for key, value in record.items())
        text = wording.request(rng, rng.choice(CHINESE_ASKS).format(s=listing), True)
    else:
        keys = rng.sample(("name", "age", "city", "color", "id", "price", "item", "size"), rng.randint(2, 4))
        if rng.random() < 0.2:
            keys[rng.randrange(len(keys))] = words.made_up(rng, 3, 6)
        record = {key: _value(rng, key, False) for key in keys}
        text = rng.choice(UNSEEN if is_unseen else ASKS).format(s=_listing(rng, record))
        if not is_unseen and rng.random() < 0.3:
            text = rng.choice(wording.BEFORE) + text
    result = json.dumps(record, ensure_ascii=False)
    return Item(
        task="json",
        key="json:"
        + json.dumps(sorted((key, str(value)) for key, value in record.items()), ensure_ascii=False),
        messages=[{"role": "user", "content": text}],
        answer=result,
        reasoning="write JSON",
        is_thinking=rng.random() < 0.5,
        final=result,
        language="zh" if is_chinese else "en",
    )
