"""Compiling forms elsewhere: limits, cache, sharing, cancelling, and a process that may die."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from qanat.config.structured import StructuredSettings
from qanat.core.errors import QueueFullError, StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured import compiler as compiler_module
from qanat.structured.backend import make_backend
from qanat.structured.compiler import GrammarCompiler
from tests.house.checkout import ROOT
from tests.structured.vocabularies import VOCABULARY, allowed

PATIENT = StructuredSettings(compile_timeout_s=600.0)
"""For forms that are not to meet the limit on time, however busy the machine is."""


async def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited for a minute")


def regex(pattern: str) -> StructuredOutputsParams:
    return StructuredOutputsParams(regex=pattern)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def compiler() -> AsyncIterator[GrammarCompiler]:
    compiler = GrammarCompiler(PATIENT, VOCABULARY.packed)
    yield compiler
    await compiler.shutdown()
    assert compiler.child_pid is None


@pytest.mark.asyncio(loop_scope="module")
async def test_a_form_becomes_a_grammar_that_compiles_again(compiler: GrammarCompiler) -> None:
    grammar = await compiler.compile(regex("[ab]+"))
    matcher = make_backend("guidance", VOCABULARY).compile(grammar).matcher()
    assert allowed(matcher) == {b"a", b"b", b"ab"}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_known_form_is_not_compiled_again(compiler: GrammarCompiler) -> None:
    before = compiler.stats()
    first = await compiler.compile(regex("known"))
    assert await compiler.compile(regex("known")) == first
    with pytest.raises(StructuredOutputError):
        await compiler.compile(regex("known("))
    with pytest.raises(StructuredOutputError):
        await compiler.compile(regex("known("))
    after = compiler.stats()
    assert after.num_compiles - before.num_compiles == 2
    assert after.num_cache_hits - before.num_cache_hits == 2
    assert after.num_refusals - before.num_refusals == 2


@pytest.mark.asyncio(loop_scope="module")
async def test_those_who_want_the_same_form_share_a_compilation(compiler: GrammarCompiler) -> None:
    before = compiler.stats()
    grammars = await asyncio.gather(*(compiler.compile(regex("shared")) for _ in range(5)))
    assert len(set(grammars)) == 1
    assert compiler.stats().num_compiles - before.num_compiles == 1
    assert compiler.stats().num_cache_hits - before.num_cache_hits == 4


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "params",
    [
        StructuredOutputsParams(regex="("),
        StructuredOutputsParams(regex="(?<=a)b"),
        StructuredOutputsParams(json={"type": "objct"}),
        StructuredOutputsParams(json="{"),
        StructuredOutputsParams(json={"$ref": "#/nowhere"}),
        StructuredOutputsParams(json={"type": "array", "minItems": 3, "maxItems": 2}),
        StructuredOutputsParams(json={"properties": {"foo": "bar"}, "type": "object"}),
        StructuredOutputsParams(grammar="start: undefined_rule"),
        StructuredOutputsParams(regex="[^\\x00-\\U0010FFFF]"),
    ],
)
async def test_api_056_a_form_that_cannot_be_compiled_is_refused_and_the_next_is_served(
    compiler: GrammarCompiler, params: StructuredOutputsParams
) -> None:
    with pytest.raises(StructuredOutputError) as refusal:
        await compiler.compile(params)
    assert refusal.value.status == 400
    assert refusal.value.message
    assert await compiler.compile(regex("a"))


@pytest.mark.asyncio(loop_scope="module")
async def test_too_large_a_form_is_refused_before_it_travels(compiler: GrammarCompiler) -> None:
    before = compiler.stats()
    with pytest.raises(StructuredOutputError, match="max_form_bytes") as refusal:
        await compiler.compile(StructuredOutputsParams(choice=["x" * 1024] * 1100))
    assert refusal.value.param == "choice"
    assert compiler.stats().num_compiles == before.num_compiles


@pytest.mark.asyncio(loop_scope="module")
async def test_too_large_a_grammar_is_refused_with_its_size() -> None:
    strict = GrammarCompiler(dataclasses.replace(PATIENT, max_grammar_bytes=1000), VOCABULARY.packed)
    assert await strict.compile(StructuredOutputsParams(choice=["x" * 800]))
    with pytest.raises(StructuredOutputError, match=r"grammar .* at most 1,000 .*max_grammar_bytes"):
        await strict.compile(StructuredOutputsParams(choice=["{" * 800]))
    await strict.shutdown()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_process_killed_from_outside_is_replaced(compiler: GrammarCompiler) -> None:
    await compiler.compile(regex("before"))
    killed = compiler.child_pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    await wait_until(lambda: compiler.child_pid is None)
    before = compiler.stats().num_restarts
    assert await compiler.compile(regex("after"))
    assert compiler.child_pid not in (None, killed)
    assert compiler.stats().num_restarts == before + 1


@pytest.mark.asyncio(loop_scope="module")
async def test_settings_of_the_server_reach_every_form() -> None:
    strict = GrammarCompiler(dataclasses.replace(PATIENT, is_compact=True, is_closed=True), VOCABULARY.packed)
    schema = {"type": "object", "properties": {"a": {"const": 1}}}
    grammar = await strict.compile(StructuredOutputsParams(json=schema))
    matcher = make_backend("guidance", VOCABULARY).compile(grammar).matcher()
    for byte in b'{"a"':
        matcher.consume(byte)
    assert allowed(matcher) == {b":"}
    await strict.shutdown()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # somebody else has to take note of its end


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def slow_backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real process with a backend that has no end on the form `slow`, and takes all memory for `greedy`."""
    (tmp_path / "sitecustomize.py").write_text(
        "import qanat.structured.guidance as guidance\n"
        "real = guidance.GuidanceBackend.grammar\n"
        "def grammar(self, params):\n"
        "    while params.regex and params.regex.startswith('slow'):\n"
        "        pass\n"
        "    if params.regex == 'greedy':\n"
        "        bytearray(2**33)\n"
        "    if params.regex == 'deadly':\n"
        "        import os; os.abort()\n"
        "    return real(self, params)\n"
        "guidance.GuidanceBackend.grammar = grammar\n"
    )
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


@pytest_asyncio.fixture(loop_scope="module")
async def slow_compiler(slow_backend: None) -> AsyncIterator[GrammarCompiler]:
    compiler = GrammarCompiler(StructuredSettings(compile_timeout_s=5.0), VOCABULARY.packed)
    yield compiler
    await compiler.shutdown()


@pytest_asyncio.fixture(loop_scope="module")
async def patient_compiler(slow_backend: None) -> AsyncIterator[GrammarCompiler]:
    """One that gives up a form without end only if it is cancelled."""
    compiler = GrammarCompiler(PATIENT, VOCABULARY.packed)
    yield compiler
    await compiler.shutdown()


@pytest.mark.asyncio(loop_scope="module")
async def test_perf_009_a_form_without_end_meets_the_time_limit_and_others_are_compiled_meanwhile(
    slow_compiler: GrammarCompiler,
) -> None:
    bomb = asyncio.create_task(slow_compiler.compile(regex("slow")))
    await wait_until(lambda: slow_compiler.stats().num_compiles == 1)
    assert await slow_compiler.compile(regex("quick"))
    assert not bomb.done()
    with pytest.raises(StructuredOutputError, match="compile_timeout_s"):
        await bomb
    assert slow_compiler.stats().num_overruns == 1
    child = slow_compiler.child_pid
    assert child is not None and children(child) == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("form", ["greedy", "deadly"])
async def test_a_form_that_takes_all_memory_or_crashes_the_library_costs_one_answer(
    patient_compiler: GrammarCompiler, form: str
) -> None:
    with pytest.raises(StructuredOutputError, match="max_compile_memory_bytes"):
        await patient_compiler.compile(regex(form))
    child = patient_compiler.child_pid
    assert await patient_compiler.compile(regex("quick"))
    assert patient_compiler.child_pid == child


@pytest.mark.asyncio(loop_scope="module")
async def test_who_leaves_cancels_but_not_for_others(patient_compiler: GrammarCompiler) -> None:
    await patient_compiler.compile(regex("quick"))
    child = patient_compiler.child_pid
    assert child is not None
    leaving = asyncio.create_task(patient_compiler.compile(regex("slow")))
    staying = asyncio.create_task(patient_compiler.compile(regex("slow")))
    await wait_until(lambda: len(children(child)) == 1)
    leaving.cancel()
    await asyncio.wait({leaving})
    await patient_compiler.compile(
        regex("after it")
    )  # whatever the process was told before has been done then
    assert len(children(child)) == 1
    staying.cancel()
    await asyncio.wait({staying})
    await wait_until(lambda: children(child) == [])


@pytest.mark.asyncio(loop_scope="module")
async def test_one_owners_slow_forms_leave_a_place_to_others(patient_compiler: GrammarCompiler) -> None:
    most = compiler_module.MAX_JOBS_PER_OWNER
    begun: list[str] = []
    flood = [
        asyncio.create_task(
            patient_compiler.compile(regex(f"slow{i}"), "flood", lambda: begun.append("flood"))
        )
        for i in range(20)
    ]
    await wait_until(lambda: patient_compiler.stats().num_compiles == most)
    assert await patient_compiler.compile(regex("quick"), "other", lambda: begun.append("other"))
    assert begun.count("other") == 1
    assert await patient_compiler.compile(regex("quick"), "third", lambda: begun.append("third"))
    assert "third" not in begun  # it was known
    for task in flood:
        task.cancel()
    await asyncio.wait(flood)
    assert begun.count("flood") >= most


@pytest.mark.asyncio(loop_scope="module")
async def test_a_form_that_others_keep_waiting_is_compiled_in_its_owners_turn(
    patient_compiler: GrammarCompiler,
) -> None:
    most = compiler_module.MAX_JOBS_PER_OWNER
    flood = [asyncio.create_task(patient_compiler.compile(regex(f"slow{i}"), "flood")) for i in range(most)]
    await wait_until(lambda: patient_compiler.stats().num_compiles == most)
    held_up = asyncio.create_task(patient_compiler.compile(regex("wanted by both"), "flood"))
    await asyncio.sleep(0)
    assert await patient_compiler.compile(regex("wanted by both"), "other")
    assert not held_up.done()
    flood[0].cancel()
    assert await held_up == await patient_compiler.compile(regex("wanted by both"), "third")
    assert patient_compiler.stats().num_compiles == most + 1
    for task in flood:
        task.cancel()
    await asyncio.wait(flood)


@pytest.mark.asyncio(loop_scope="module")
async def test_what_one_owner_has_waiting_is_bounded(patient_compiler: GrammarCompiler) -> None:
    large = ["x" * 1000] * 900
    most = compiler_module.MAX_JOBS_PER_OWNER
    tasks = [asyncio.create_task(patient_compiler.compile(regex(f"slow{i}"), "flood")) for i in range(most)]
    await wait_until(lambda: patient_compiler.stats().num_compiles == most)
    num_fitting = compiler_module.MAX_WAITING_BYTES_PER_OWNER // 910_000
    for i in range(num_fitting):
        params = StructuredOutputsParams(choice=[*large, str(i)])
        tasks.append(asyncio.create_task(patient_compiler.compile(params, "flood")))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError, match="Too many forms") as refusal:
        await patient_compiler.compile(StructuredOutputsParams(choice=[*large, "late"]), "flood")
    assert not refusal.value.has_cost
    assert await patient_compiler.compile(regex("quick"), "other")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.asyncio(loop_scope="module")
async def test_more_slow_forms_than_places_are_refused_as_too_many(slow_compiler: GrammarCompiler) -> None:
    most = compiler_module.MAX_JOBS_PER_OWNER
    slow = [asyncio.create_task(slow_compiler.compile(regex(f"slow{i}"))) for i in range(most)]
    await wait_until(lambda: slow_compiler.stats().num_compiles == most)
    late = [asyncio.create_task(slow_compiler.compile(regex(f"slow late {i}"))) for i in range(8)]
    results = await asyncio.gather(*slow, *late, return_exceptions=True)
    assert all(isinstance(result, StructuredOutputError) for result in results[: len(slow)])
    assert any(isinstance(result, QueueFullError) for result in results[len(slow) :])


@pytest.mark.asyncio(loop_scope="module")
async def test_the_end_of_the_parent_ends_what_is_being_compiled(patient_compiler: GrammarCompiler) -> None:
    await patient_compiler.compile(regex("quick"))
    child = patient_compiler.child_pid
    assert child is not None
    waiting = asyncio.create_task(patient_compiler.compile(regex("slow")))
    await wait_until(lambda: len(children(child)) == 1)
    (job,) = children(child)
    await patient_compiler.shutdown()
    await asyncio.wait({waiting})
    await wait_until(lambda: not is_running(job))
    assert not is_running(child)


PARENT = """
import asyncio, sys
from qanat.config.structured import StructuredSettings
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.compiler import GrammarCompiler
from tests.structured.vocabularies import VOCABULARY

async def main():
    compiler = GrammarCompiler(StructuredSettings(), VOCABULARY.packed)
    await compiler.compile(StructuredOutputsParams(regex="a"))
    print(compiler.child_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_outlives_a_parent_that_is_killed() -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert is_running(child)
    parent.kill()
    await parent.wait()
    await wait_until(lambda: not is_running(child))
