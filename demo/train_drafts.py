"""Train the MTP layer alone to draft several tokens in a row: `python demo/train_drafts.py --run build/drafts`.

It starts from the model folder that ships; whatever is not the layer's stays as it is, bit for bit. The layer learns on
its own output, as it drafts (`DemoModel.draft_passes`). `demo/export.py --run build/drafts` writes the result. Same
options, same machine: same weights; a run is continued with --resume.
"""

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from demokit.batches import IGNORED, Batch, make_batches  # noqa: E402
from demokit.mixture import held_out_items  # noqa: E402
from demokit.model import DemoModel, Shape, Weights  # noqa: E402
from demokit.rendering import MODEL_FOLDER  # noqa: E402
from demokit.scoring import draft_agreement  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from train import batches_from, learning_rate, make_optimizer, save_checkpoint  # noqa: E402

DRAFT_LAYER = "mtp."


def parse_options() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --run")
    parser.add_argument("--drafts", type=int, default=3, help="tokens drafted in a row")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--tokens", type=int, default=1024, help="tokens a step, padding included")
    parser.add_argument("--learning-rate", type=float, default=1.5e-3)
    parser.add_argument("--warmup-steps", type=int, default=50)
    parser.add_argument("--weight-decay", type=float, default=0.02)
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the load-balancing loss")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint-steps", type=int, default=400)
    return parser.parse_args()


def losses(model: DemoModel, batch: Batch, num_drafts: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """(loss of each draft in turn, mean load-balancing loss) of one batch."""
    with torch.no_grad():
        hidden, _ = model.hidden_states(batch.ids)
    found: list[torch.Tensor] = []
    passes = model.draft_passes(batch.ids, hidden, num_drafts)
    for index, (states, _) in enumerate(passes):
        labels = batch.labels[:, 2 + index :]
        is_written = labels != IGNORED
        found.append(F.cross_entropy(model.logits(states[:, :-1][is_written]), labels[is_written]))
    return found, torch.stack([balance for _, balance in passes]).mean()


def load(options: argparse.Namespace) -> tuple[Weights, Weights]:
    """All weights of the model folder, and those of the layer among them, which learn."""
    weights = {name: value.float() for name, value in load_file(MODEL_FOLDER / "model.safetensors").items()}
    own = {name: value.requires_grad_() for name, value in weights.items() if name.startswith(DRAFT_LAYER)}
    return weights, own


def main() -> None:
    """Train."""
    options = parse_options()
    torch.set_num_threads(1)
    options.run.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))
    weights, own = load(options)
    optimizer = make_optimizer(own, options)
    step, first_pool, first_place = 0, 0, 0
    path = options.run / "checkpoint.pt"
    if options.resume:
        saved = torch.load(path)
        for name, value in own.items():
            value.data.copy_(saved["weights"][name])
        optimizer.load_state_dict(saved["optimizer"])
        step, first_pool, first_place = saved["step"], saved["pool"], saved["place"]
    model = DemoModel(Shape(), weights)
    held_out = make_batches(tokenizer, list(held_out_items(seed=11, count=24)), 2048)
    print(f"from step {step}: drafts agreed with {draft_agreement(model, held_out)} %", flush=True)
    started, recent = time.monotonic(), []
    for pool, place, batch in batches_from(tokenizer, options, first_pool, first_place):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options)
        each, balance = losses(model, batch, options.drafts)
        optimizer.zero_grad(set_to_none=True)
        (torch.stack(each).sum() + options.balance * balance).backward()
        torch.nn.utils.clip_grad_norm_(own.values(), 1.0, foreach=True)
        optimizer.step()
        step += 1
        recent.append([loss.item() for loss in each])
        if step % 100 == 0:
            means = [round(sum(column) / len(recent), 4) for column in zip(*recent, strict=True)]
            print(f"step {step} losses {json.dumps(means)} {time.monotonic() - started:.0f} s", flush=True)
            recent = []
        if step % options.checkpoint_steps == 0 or step >= options.steps:
            plain = {name: value.detach() for name, value in weights.items()}
            state = {"weights": plain, "optimizer": optimizer.state_dict(), "step": step}
            save_checkpoint(path, {**state, "pool": pool, "place": place, "shape": asdict(model.shape)})
            print(f"step {step}: drafts agreed with {draft_agreement(model, held_out)} %", flush=True)
        if step >= options.steps:
            return


if __name__ == "__main__":
    main()
