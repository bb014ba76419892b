"""What travels with a request to the sampler."""

from __future__ import annotations

import asyncio

import pytest

from qanat.core.constraint import Thinking
from qanat.engine.constraints import ConstraintMaker, VocabularyPacker
from tests.support.scripted_engine import start_scripted_engine


def test_blank_lines_are_looked_for_once_and_with_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        engine = start_scripted_engine().engine
        tokenizer = engine.tokenizer
        spelled = tokenizer.token_bytes
        blank_ids = [i for i in range(tokenizer.vocab_size) if spelled(i) in (b"\n", b"\n\n")]
        vocabulary = VocabularyPacker(tokenizer, engine.config)
        maker = ConstraintMaker(tokenizer, engine.config, vocabulary)
        vocabulary.packed()
        num_looks = 0

        def counted(token_id: int) -> bytes:
            nonlocal num_looks
            num_looks += 1
            return spelled(token_id)

        monkeypatch.setattr(tokenizer, "token_bytes", counted)
        assert blank_ids and maker.constraint("grammar", Thinking.OPEN).blank_ids == blank_ids
        assert num_looks == 0
        await engine.shutdown()

    asyncio.run(test())
