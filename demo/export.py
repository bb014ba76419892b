"""Write the model folder from a training run and score the rounded weights: `python demo/export.py --run build/run`."""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from demokit import export  # noqa: E402
from demokit.batches import make_batches  # noqa: E402
from demokit.mixture import held_out_items  # noqa: E402
from demokit.model import DemoModel, Shape  # noqa: E402
from demokit.rendering import MODEL_FOLDER  # noqa: E402
from demokit.scoring import draft_agreement, score  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


def main() -> None:
    """Export, then print teacher-forced accuracy and draft agreement of fp32 and of bf16 weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="folder with checkpoint.pt")
    parser.add_argument("--out", type=Path, default=MODEL_FOLDER)
    parser.add_argument("--items", type=int, default=100, help="held-out items per task to score; 0 for none")
    options = parser.parse_args()
    torch.set_num_threads(1)
    saved = torch.load(options.run / "checkpoint.pt")
    shape, weights = Shape(**saved["shape"]), saved["weights"]
    tokenizer = Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))
    export.write_model(options.out, shape, weights, tokenizer)
    print(f"step {saved['step']} written to {options.out}")
    if options.items:
        held_out = make_batches(tokenizer, list(held_out_items(seed=12, count=options.items)), 2048)
        for name, chosen in (("fp32", weights), ("bf16", export.rounded(weights))):
            model = DemoModel(shape, chosen)
            print(
                name,
                json.dumps(score(model, held_out)),
                f"drafts agreed with: {draft_agreement(model, held_out)} %",
            )


if __name__ == "__main__":
    main()
