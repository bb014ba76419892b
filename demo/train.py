"""Train the demo model on one thread: `python demo/train.py --run build/run`.

Same seed, same options, same machine: same weights. A run is continued with --resume; loss and held-out accuracy
(teacher-forced: every token of thought and answer is the most likely one) are printed as it goes.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from demokit.batches import IGNORED, Batch, make_batches, training_pool  # noqa: E402
from demokit.mixture import held_out_items  # noqa: E402
from demokit.model import DemoModel, Shape, Weights, initial_weights  # noqa: E402
from demokit.rendering import MODEL_FOLDER  # noqa: E402
from demokit.scoring import score  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


def parse_options() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of the checkpoint and the log")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --run")
    parser.add_argument("--steps", type=int, default=21_600)
    parser.add_argument("--tokens", type=int, default=1024, help="tokens a step, padding included")
    parser.add_argument("--layers", type=int, default=Shape.num_layers)
    parser.add_argument("--learning-rate", type=float, default=2.5e-3)
    parser.add_argument("--warmup-steps", type=int, default=300)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the load-balancing loss")
    parser.add_argument("--mtp", type=float, default=0.2, help="weight of the loss of the MTP layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-steps", type=int, default=500)
    parser.add_argument("--stop-after", type=int, default=0, help="leave after this many steps of this call")
    return parser.parse_args()


def learning_rate(step: int, options: argparse.Namespace) -> float:
    """Linear warm-up, then a cosine down to 2 % of the peak at `--steps`."""
    warm = min(1.0, (step + 1) / options.warmup_steps)
    return options.learning_rate * warm * (0.51 + 0.49 * math.cos(math.pi * min(1.0, step / options.steps)))


def make_optimizer(weights: Weights, options: argparse.Namespace) -> torch.optim.AdamW:
    """AdamW; only matrices decay."""
    groups = [
        {"params": [w for w in weights.values() if w.ndim >= 2], "weight_decay": options.weight_decay},
        {"params": [w for w in weights.values() if w.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, 0.98), fused=True)


def losses(model: DemoModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(next-token loss, loss of the MTP layer, load-balancing loss) of one batch."""
    hidden, balance = model.hidden_states(batch.ids)
    written = batch.labels[:, 1:] != IGNORED
    main = F.cross_entropy(model.logits(hidden[:, :-1][written]), batch.labels[:, 1:][written])
    draft, draft_balance = model.draft_states(batch.ids, hidden)
    ahead = batch.labels[:, 2:] != IGNORED
    mtp = F.cross_entropy(model.logits(draft[:, :-1][ahead]), batch.labels[:, 2:][ahead])
    return main, mtp, balance + draft_balance / model.shape.num_layers


def batches_from(
    tokenizer: Tokenizer, options: argparse.Namespace, pool: int, place: int
) -> Iterator[tuple[int, int, Batch]]:
    """Endless (pool, place of the next batch, batch) from a given place on."""
    while True:
        batches = training_pool(tokenizer, options.seed, pool, options.tokens)
        for index in range(place, len(batches)):
            yield pool, index + 1, batches[index]
        pool, place = pool + 1, 0


def save_checkpoint(path: Path, state: dict[str, object]) -> None:
    """Write the checkpoint so that a killed run leaves the old one whole."""
    torch.save(state, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def main() -> None:
    """Train."""
    options = parse_options()
    torch.set_num_threads(1)
    options.run.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))
    shape = Shape(num_layers=options.layers)
    weights = initial_weights(shape, options.seed)
    optimizer = make_optimizer(weights, options)
    step, first_pool, first_place = 0, 0, 0
    path = options.run / "checkpoint.pt"
    if options.resume:
        saved = torch.load(path)
        for name, value in saved["weights"].items():
            weights[name].data.copy_(value)
        optimizer.load_state_dict(saved["optimizer"])
        step, first_pool, first_place = saved["step"], saved["pool"], saved["place"]
    model = DemoModel(shape, weights)
    print(
        f"{sum(w.numel() for w in weights.values()):,} parameters, from step {step} of {options.steps}",
        flush=True,
    )
    held_out = make_batches(tokenizer, list(held_out_items(seed=11, count=48)), 2048)
    first, started, num_tokens, recent = step, time.monotonic(), 0, []
    for pool, place, batch in batches_from(tokenizer, options, first_pool, first_place):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options)
        main_loss, mtp_loss, balance = losses(model, batch)
        optimizer.zero_grad(set_to_none=True)
        (main_loss + options.mtp * mtp_loss + options.balance * balance).backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0, foreach=True)
        optimizer.step()
        step += 1
        num_tokens += batch.ids.numel()
        recent.append((main_loss.item(), mtp_loss.item(), balance.item()))
        if step % 100 == 0:
            means = [sum(column) / len(recent) for column in zip(*recent, strict=True)]
            speed = num_tokens / (time.monotonic() - started)
            print(
                f"step {step} loss {means[0]:.4f} mtp {means[1]:.4f} balance {means[2]:.2f} {speed:.0f} tokens/s",
                flush=True,
            )
            recent = []
        is_over = step >= options.steps or (options.stop_after and step - first >= options.stop_after)
        if step % options.checkpoint_steps == 0 or is_over:
            plain = {name: value.detach() for name, value in weights.items()}
            state = {
                "weights": plain,
                "optimizer": optimizer.state_dict(),
                "step": step,
                "pool": pool,
                "place": place,
            }
            save_checkpoint(path, {**state, "shape": asdict(shape)})
            print(f"step {step} held-out {json.dumps(score(model, held_out))}", flush=True)
        if is_over:
            return


if __name__ == "__main__":
    main()
