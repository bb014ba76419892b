"""Runs llama.cpp's own converter on a checkpoint without a tokenizer: convert_gguf.py SOURCE CHECKPOINT OUT TYPE.

SOURCE is llama.cpp's source folder; the interpreter needs what its converter needs (torch, transformers, numpy). The
benchmarks of llama.cpp draw token ids, so the file says that there is no vocabulary but for its size.
"""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> int:
    """Converts."""
    source, checkpoint, out, kind = arguments
    sys.path[:0] = [source, str(Path(source) / "gguf-py")]
    for name in ("conversion.base", "conversion.qwen"):
        _without_vocabulary(importlib.import_module(name))
    script = str(Path(source) / "convert_hf_to_gguf.py")
    sys.argv = [script, checkpoint, "--outfile", out, "--outtype", kind]
    config = json.loads((Path(checkpoint) / "config.json").read_text(encoding="utf-8"))
    if (
        "mtp_num_hidden_layers" in config
    ):  # the random checkpoint has no draft layers, of which 0 would mean unknown
        sys.argv.append("--no-mtp")
    runpy.run_path(script, run_name="__main__")
    return 0


def _without_vocabulary(module: Any) -> None:
    """Every class that writes a vocabulary writes its size instead."""

    def set_vocab(model: Any) -> None:
        model._set_vocab_none()
        model.gguf_writer.add_vocab_size(model.hparams["vocab_size"])

    for value in vars(module).values():
        if isinstance(value, type) and hasattr(value, "set_vocab") and hasattr(value, "_set_vocab_none"):
            value.set_vocab = set_vocab  # type: ignore[attr-defined]  # a class of the other project


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
