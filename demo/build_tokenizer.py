"""Build the demo vocabulary from generated items: `python demo/build_tokenizer.py`. Same items, same file."""

import argparse

from demokit import rendering, tokenizer
from demokit.mixture import training_items


def main() -> None:
    """Write tokenizer.json and tokenizer_config.json into the model folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000, help="entries, special tokens included")
    parser.add_argument("--items", type=int, default=40_000)
    options = parser.parse_args()
    items = training_items(seed=7, pool=0, count=options.items)
    texts = (rendering.prompt_of(item) + rendering.completion_of(item) for item in items)
    built = tokenizer.build(texts, options.size)
    tokenizer.save(built, rendering.MODEL_FOLDER)
    print(f"{built.get_vocab_size()} entries in {rendering.MODEL_FOLDER}")


if __name__ == "__main__":
    main()
