"""Rule R8 for whole models: drafts that are verified change nothing, however many of them are right."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qanat.kernels.providers import choose_providers
from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy
from tests.support.forward import Draft, ForwardRunner
from tests.worker.tiny_model import CONFIGS, VOCAB_SIZE

TOKENS = torch.randint(0, VOCAB_SIZE, (90,), generator=torch.Generator().manual_seed(5)).tolist()
MAX_HELD = 4


@pytest.fixture(scope="module", params=["", "reference"], ids=["native", "reference"])
def model(request: pytest.FixtureRequest) -> CausalLM:
    choose_providers(2, request.param)
    return load_dummy(CONFIGS["qwen3_5"], torch.bfloat16, seed=3)


def memory(runner: ForwardRunner) -> list[Tensor]:
    """What the request's next token will be computed from."""
    request = runner.running["r"]
    states = [tensor[request.state_id] for tensor in [*runner.conv_states, *runner.recurrent_states]]
    blocks = [cache[:, request.blocks].flatten(1, 2)[:, : request.num_computed] for cache in runner.kv_cache]
    return [tensor.clone() for tensor in states + blocks]


def test_verified_rows_are_those_of_plain_decoding(model: CausalLM) -> None:
    """Another request decodes beside it, so that rows of both kinds share a step."""
    runner = ForwardRunner(model, max_held=MAX_HELD)
    (prompt, _), done, before, found = runner.step([("r", TOKENS[:30]), ("s", TOKENS[60:70])]), 30, 0, []
    for step, right in enumerate((1, 4, 2, 3, 0, 4, 1, 4, 4, 2, 3, 2)):
        if right == 0:  # nothing is drafted
            draft = Draft("r", TOKENS[done : done + 1], before)
        else:
            wrong = [(token + 1) % VOCAB_SIZE for token in TOKENS[done + right : done + MAX_HELD]]
            draft = Draft("r", TOKENS[done : done + right] + wrong, before, right)
        _, rows = runner.verify([Draft("s", TOKENS[70 + step : 71 + step]), draft])
        found += rows[: max(right, 1)].split(1)
        done, before = done + max(right, 1), right
    runner.verify([Draft("r", [], before)])
    plain = ForwardRunner(model)
    assert torch.equal(prompt, *plain.step([("r", TOKENS[:30])]))
    expected = [plain.step([("r", [token])])[0] for token in TOKENS[30:done]]
    assert torch.equal(torch.cat(found), torch.cat(expected))
    for ours, theirs in zip(memory(runner), memory(plain), strict=True):
        assert torch.equal(ours, theirs)
