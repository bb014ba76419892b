from pathlib import Path

import pytest
import torch
from demokit import export, ops
from demokit.batches import IGNORED, make_batches, training_pool
from demokit.mixture import held_out_items, training_items
from demokit.model import DemoModel, Shape, initial_weights, parameter_shapes
from demokit.rendering import MODEL_FOLDER
from demokit.scoring import draft_agreement, score
from safetensors.torch import load_file
from tokenizers import Tokenizer

TINY = Shape(vocab_size=1024, hidden_size=64, num_layers=4, num_heads=2, num_kv_heads=1, head_dim=32, rotary_dim=8,
             num_delta_heads=2, num_experts=4, expert_size=32, shared_size=32)  # fmt: skip
SHIPPED = Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "fused", lambda: None)


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    drawn = initial_weights(TINY, seed=5)
    generator = torch.Generator().manual_seed(1)
    for name, value in drawn.items():
        if "norm" in name:
            value.data += 0.2 * torch.randn(value.shape, generator=generator)
    return drawn


@pytest.mark.usefixtures("plain")
def test_logits_agree_with_transformers(weights: dict[str, torch.Tensor]) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3_5MoeTextConfig(**export.text_config(TINY, end_of_text=0))
    reference = transformers.Qwen3_5MoeForCausalLM(config).float().eval()
    trunk = {
        n.replace("language_model.", ""): w.detach() for n, w in weights.items() if not n.startswith("mtp.")
    }
    assert not any(reference.load_state_dict(trunk, strict=True))
    ids = torch.randint(0, 1000, (2, 40), generator=torch.Generator().manual_seed(2))
    model = DemoModel(TINY, weights)
    with torch.no_grad():
        wanted, got = reference(ids).logits, model.logits(model.hidden_states(ids)[0])
    assert (wanted - got).abs().max() < 1e-4 * wanted.abs().max()


@pytest.mark.usefixtures("plain")
def test_every_tensor_learns(weights: dict[str, torch.Tensor]) -> None:
    model = DemoModel(TINY, weights)
    ids = torch.randint(0, 1000, (2, 12))
    hidden, balance = model.hidden_states(ids)
    draft, draft_balance = model.draft_states(ids, hidden)
    assert draft.shape == (2, 11, TINY.hidden_size)
    (
        model.logits(hidden).square().mean() + model.logits(draft).square().mean() + balance + draft_balance
    ).backward()
    assert not [name for name, value in weights.items() if value.grad is None or not value.grad.any()]


@pytest.mark.usefixtures("plain")
def test_padding_on_the_right_changes_nothing(weights: dict[str, torch.Tensor]) -> None:
    model = DemoModel(TINY, weights)
    ids = torch.randint(0, 1000, (1, 20))
    longer = torch.cat((ids, torch.zeros(1, 7, dtype=torch.long)), 1)
    with torch.no_grad():
        short, long = model.hidden_states(ids)[0], model.hidden_states(longer)[0]
    torch.testing.assert_close(short, long[:, :20], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_fused_pieces_agree_with_plain_ones() -> None:
    if ops.fused() is None:
        pytest.skip("no C++ compiler")
    generator = torch.Generator().manual_seed(0)

    def leaf(*size: int, scale: float = 1.0) -> torch.Tensor:
        return (scale * torch.randn(size, generator=generator)).requires_grad_()

    per_head = [leaf(2, 9, 2), leaf(2, 9, 2), leaf(2), leaf(2)]  # b, a, A_log, dt_bias
    delta = [leaf(2, 9, 192), leaf(192, 1, 4, scale=0.4), leaf(2, 9, 64), *per_head, leaf(32)]
    chosen = torch.randint(0, 3, (10, 2), generator=generator)  # expert 3 gets no token
    x, share, up, down = leaf(10, 64), leaf(10, 2), leaf(4, 64, 64, scale=0.1), leaf(4, 64, 32, scale=0.1)
    rows, weight = [leaf(5, 64), leaf(5, 64)], leaf(64)
    both = leaf(5, 64)
    pairs = [
        (ops.delta_net(*delta), ops.plain_delta_net(*delta), delta),
        (
            ops.experts(x, chosen, share, up, down),
            ops.plain_experts(x, chosen, share, up, down),
            [x, share, up, down],
        ),
        (ops.swiglu(both), ops.plain_swiglu(both), [both]),
        (sum(ops.add_norm(*rows, weight)), sum(rows) + ops.rms_norm(sum(rows), weight), [*rows, weight]),
    ]
    for fused, plain, leaves in pairs:
        torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-4)
        pull = torch.randn(plain.shape, generator=generator)
        wanted = torch.autograd.grad((plain * pull).sum(), leaves)
        got = torch.autograd.grad((fused * pull).sum(), leaves)
        for left, right in zip(got, wanted, strict=True):
            torch.testing.assert_close(left, right, atol=2e-4 * float(right.abs().max()), rtol=1e-3)


def test_export_has_the_tensors_of_a_real_checkpoint(
    weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    export.write_model(tmp_path, TINY, weights, SHIPPED)
    stored = load_file(tmp_path / "model.safetensors")
    assert {name: tuple(value.shape) for name, value in stored.items()} == parameter_shapes(TINY)
    kept = {name for name, value in stored.items() if value.dtype == torch.float32}
    assert kept == {name for name in stored if name.endswith(("A_log", "linear_attn.norm.weight"))}
    assert all(value.dtype == torch.bfloat16 for name, value in stored.items() if name not in kept)
    for name, value in export.rounded(weights).items():
        assert torch.equal(value, stored[name].float())


def test_export_refuses_a_vocabulary_that_does_not_fit(
    weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="only 64 rows"):
        export.write_model(tmp_path, Shape(vocab_size=64), weights, SHIPPED)


def test_batches_hold_every_item_once_and_label_what_is_to_be_written() -> None:
    items = training_items(0, 0, 200)
    batches = make_batches(SHIPPED, items, 512)
    assert sorted(id(item) for batch in batches for item in batch.items) == sorted(map(id, items))
    for batch in batches:
        assert batch.ids.numel() <= 512 or len(batch.items) == 1
        written = batch.labels != IGNORED
        assert torch.equal(batch.labels[written], batch.ids[written])
        assert written.any(1).all()


def test_pools_are_the_same_for_the_same_seed() -> None:
    first, second = (training_pool(SHIPPED, 0, 1, 4096) for _ in range(2))
    assert all(
        torch.equal(a.ids, b.ids) and torch.equal(a.labels, b.labels)
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.usefixtures("plain")
def test_score_counts_by_task(weights: dict[str, torch.Tensor]) -> None:
    batches = make_batches(SHIPPED, list(held_out_items(0, 2)), 1024)
    table = score(DemoModel(TINY, weights), batches)
    assert {name.removesuffix("-off") for name in table} == {
        "add", "sub", "sort", "compare", "text", "json", "tool_call", "tool_answer",
    }  # fmt: skip
    assert all(value == 0 for value in table.values())


@pytest.mark.usefixtures("plain")
def test_draft_agreement_is_whole_when_both_heads_always_say_the_same(
    weights: dict[str, torch.Tensor],
) -> None:
    batches = make_batches(SHIPPED, list(held_out_items(0, 1)), 1024)
    assert max(draft_agreement(DemoModel(TINY, weights), batches)) < 50
    weights["lm_head.weight"] = torch.zeros_like(
        weights["lm_head.weight"]
    )  # every logit ties: token 0 for both
    assert draft_agreement(DemoModel(TINY, weights), batches) == [100, 100, 100]


@pytest.mark.usefixtures("plain")
def test_later_drafts_see_what_was_drafted_and_nothing_ahead(weights: dict[str, torch.Tensor]) -> None:
    """Row t of pass j reads tokens up to t + 1 + j, and that one too."""
    model = DemoModel(TINY, weights)
    ids = torch.randint(0, 1000, (1, 14), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        hidden, _ = model.hidden_states(ids)
        passes = [states for states, _ in model.draft_passes(ids, hidden, 3)]
        assert torch.equal(passes[0], model.draft_states(ids, hidden)[0])
        for changed in (5, 9):
            other = ids.clone()
            other[0, changed] = (other[0, changed] + 1) % 1000
            for index, (before, (after, _)) in enumerate(
                zip(passes, model.draft_passes(other, hidden, 3), strict=True)
            ):
                first = changed - 1 - index
                assert before.shape[1] == 13 - index
                torch.testing.assert_close(before[:, :first], after[:, :first])
                assert not torch.allclose(before[:, first], after[:, first])
