"""Forms made to do harm: each is refused or ends its own output, in the compile process before the engine meets it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.backend import make_backend
from qanat.structured.budget import MAX_CREDIT_S, TOO_COMPLEX, BudgetedMatcher, WorkBudget
from qanat.structured.compiler import GrammarCompiler
from qanat.structured.grammars import lark_of
from qanat.structured.matcher import has_bit
from qanat.structured.threads import MAX_JOB_STACK_BYTES, STACK_BYTES, roomy_threads
from qanat.structured.trial import try_out
from qanat.structured.vocabulary import Vocabulary
from tests.structured.test_compiler import PATIENT, children, is_running, wait_until
from tests.structured.vocabularies import VOCABULARY, allowed

Form = StructuredOutputsParams


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def compiler() -> AsyncIterator[GrammarCompiler]:
    compiler = GrammarCompiler(PATIENT, VOCABULARY.packed)
    yield compiler
    await compiler.shutdown()


def chained_references(num: int) -> Form:
    links = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"enum": [i]}]} for i in range(num)}
    return Form(json={"$ref": "#/$defs/d0", "$defs": {**links, f"d{num}": {"enum": ["A"]}}})


def chained_rules(num: int) -> Form:
    rules = "".join(f'r{i}: "A" r{i + 1}\n' for i in range(num))
    return Form(grammar=f'start: r0\n{rules}r{num}: "Z"\n')


def chained_terminals(num: int) -> Form:
    terminals = "".join(f'T{i}: ("A" T{i + 1})?\n' for i in range(num))
    return Form(grammar=f'start: T0\n{terminals}T{num}: "Z"\n')


AMBIGUOUS = "start: x\nx: " + " | ".join(" ".join(["x"] * num) for num in range(2, 8)) + " | /[a-z]/ | "


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("chain", [chained_references, chained_rules, chained_terminals])
async def test_chains_too_long_for_the_library_are_refused_as_nested_too_deeply(
    compiler: GrammarCompiler, chain: object
) -> None:
    assert callable(chain)
    await compiler.compile(Form(choice=["ready"]))
    child = compiler.child_pid
    with pytest.raises(StructuredOutputError, match="nested too deeply"):
        await compiler.compile(chain(15_000))
    assert compiler.child_pid == child


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("chain", [chained_references, chained_rules, chained_terminals])
async def test_what_the_compile_process_bears_has_room_to_spare_in_the_engine(
    compiler: GrammarCompiler, chain: object
) -> None:
    """The longest chain that passes there compiles here on a small part of the stack that the engine has."""
    assert callable(chain)
    low, high = 10, 15_000
    grammar = await compiler.compile(chain(low))
    while high - low > high // 20:
        middle = (low + high) // 2
        try:
            grammar = await compiler.compile(chain(middle))
            low = middle
        except StructuredOutputError:
            high = middle
    assert low > 50, "forms that people write go through"
    assert STACK_BYTES >= 16 * MAX_JOB_STACK_BYTES
    backend = make_backend("guidance", VOCABULARY)
    usual_bytes = threading.stack_size(2 * MAX_JOB_STACK_BYTES)
    try:
        thread = threading.Thread(target=backend.compile, args=(grammar,))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(usual_bytes)


def test_threads_with_much_room_all_run_before_others_are_made() -> None:
    usual_bytes = threading.stack_size()
    before = threading.active_count()
    names: list[str] = []
    threads = roomy_threads(3, "roomy", lambda: names.append(threading.current_thread().name))
    assert threading.stack_size() == usual_bytes
    assert threading.active_count() == before + 3
    threads.shutdown()
    assert len(set(names)) == 3


LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [a + b for a in LETTERS for b in LETTERS] + [4 * a + 4 * b for a in LETTERS for b in LETTERS]
NUM_BLANKS = 80
BLANK = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), *(b" " * (i + 1) for i in range(NUM_BLANKS)), b"<end>"],
    [256 + NUM_BLANKS],
    [256 + NUM_BLANKS],
)
"""Tokens of many spaces, as real vocabularies have them."""
WORDY = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in WORDS), b"<end>"],
    [256 + len(WORDS)],
    [256 + len(WORDS)],
)
"""Tokens of several letters, as real vocabularies have them: each asks for several steps of the parser."""


@pytest.mark.parametrize(
    "form",
    [
        Form(grammar=AMBIGUOUS),
        Form(grammar="start: x\nx: x x x x x x | x x x | x x | /[a-z]/ | "),
        Form(json={"properties": {f"p{i}": {"type": "string", "pattern": "^[a-z]+$"} for i in range(1000)}}),
    ],
)
def test_a_form_with_too_many_ways_to_go_on_is_refused_before_an_output_depends_on_it(form: Form) -> None:
    backend = make_backend("guidance", WORDY)
    compiled = backend.compile(backend.grammar(form))
    with pytest.raises(StructuredOutputError) as refusal:
        try_out(compiled.matcher(), WORDY.num_mask_words, WORDY.eos_ids)
    assert refusal.value.message == TOO_COMPLEX


def alternatives(num: int) -> str:
    return " | ".join(" ".join(["x"] * length) for length in range(2, num))


@pytest.mark.parametrize(
    "grammar",
    [
        f'start: "0123" x\nx: {alternatives(20)} | /[a-z]/ |',
        f'start: "0123" x\n?x.2 : {alternatives(20)} | /[a-z]/ |',
        "start: x\nx: " + "y " * 200 + "|\ny: x | /[a-z]/ |",
        "root ::= x\nx ::= " + "x " * 200 + '| [a-z] | ""',
    ],
)
def test_a_rule_that_is_mentioned_too_often_by_what_it_leads_to_is_refused(grammar: str) -> None:
    with pytest.raises(StructuredOutputError, match="rule [xy] is mentioned more than 128 times"):
        lark_of(grammar)


def test_a_rule_may_be_mentioned_often_by_those_that_it_does_not_lead_to() -> None:
    lark_of("start: " + "name " * 500 + "\nname: /[a-z]/")
    lark_of('start: "' + "x " * 500 + '" x\nx: "a" x | /' + "x " * 500 + "/ // " + "x " * 500)


def test_the_usual_way_to_write_blanks_and_json_can_be_followed() -> None:
    grammar = r"""root ::= object
value ::= object | array | string | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ([^"\\] | "\\" ["\\/bfnrt])* "\"" ws
ws ::= ([ \t\n] ws)?
"""
    backend = make_backend("guidance", BLANK)
    compiled = backend.compile(backend.grammar(Form(grammar=grammar)))
    matcher = compiled.matcher()
    words = np.zeros(BLANK.num_mask_words, dtype=np.int32)
    for token_id in (ord("{"), *range(256, 256 + NUM_BLANKS), *b'"a": [{}, {"b": true}]', *b"}"):
        matcher.fill_mask(words)
        assert has_bit(words, token_id)
        matcher.consume(token_id)


def test_rules_by_hand_meet_their_limit_wherever_they_stand() -> None:
    """Behind a beginning that nobody tries out, a mask still has an end."""
    backend = make_backend("guidance", WORDY)
    words = np.zeros(WORDY.num_mask_words, dtype=np.int32)
    late = AMBIGUOUS.replace("start: x", 'start: "0123" x')
    tag = {"type": "structural_tag", "format": {"type": "grammar", "grammar": late}}
    for form in (Form(grammar=late), Form(structural_tag=tag)):
        matcher = backend.compile(backend.grammar(form)).matcher()
        for byte in b"0123":
            matcher.consume(byte)
        with pytest.raises(StructuredOutputError, match="too complex"):
            for _ in range(30):
                matcher.fill_mask(words)
                matcher.consume(ord("a"))


@pytest.mark.asyncio(loop_scope="module")
async def test_the_compile_process_follows_a_form_a_little_way(compiler: GrammarCompiler) -> None:
    properties = {f"p{i}": {"type": "string", "pattern": "^[a-z]+$"} for i in range(1000)}
    with pytest.raises(StructuredOutputError) as refusal:
        await compiler.compile(Form(json={"type": "object", "properties": properties}))
    assert refusal.value.message == TOO_COMPLEX


def test_large_but_plain_forms_can_be_followed() -> None:
    backend = make_backend("guidance", WORDY)
    kinds = [
        {"type": "object", "properties": {"kind": {"const": f"k{i}"}}, "required": ["kind"]}
        for i in range(300)
    ]
    for form in (
        Form(json={"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(250)}}),
        Form(json={"anyOf": kinds}),
        Form(choice=[f"text {i}" for i in range(5000)]),
        Form(json_object=True),
    ):
        try_out(backend.compile(backend.grammar(form)).matcher(), WORDY.num_mask_words, WORDY.eos_ids)


def test_trying_a_form_out_leaves_it_at_its_start_and_takes_dead_ends_further_on() -> None:
    backend = make_backend("guidance", VOCABULARY)
    matcher = backend.compile(backend.grammar(Form(regex="[ab]{40}"))).matcher()
    try_out(matcher, VOCABULARY.num_mask_words, VOCABULARY.eos_ids)
    assert allowed(matcher) == {b"a", b"b", b"ab"}


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class SlowMatcher:
    """Allows everything, and takes its time."""

    def __init__(self, clock: Clock, step_s: float) -> None:
        self._clock = clock
        self._step_s = step_s

    def fill_mask(self, words: np.ndarray) -> bool:
        self._clock.now_s += self._step_s
        return False

    def consume(self, token_id: int) -> None:
        self._clock.now_s += self._step_s

    def rollback(self, num_tokens: int) -> None:
        pass

    def forced(self) -> list[int]:
        self._clock.now_s += self._step_s
        return []


def steps_until_refused(step_s: float, num_outputs: int, most: int) -> int:
    work, budget = Clock(), None
    budget = WorkBudget(work, Clock())
    outputs = [BudgetedMatcher(SlowMatcher(work, step_s), budget) for _ in range(num_outputs)]
    words = np.zeros(1, dtype=np.int32)
    for step in range(most):
        try:
            for output in outputs:
                output.fill_mask(words)
                output.consume(0)
                output.forced()
        except StructuredOutputError as error:
            assert error.message == TOO_COMPLEX
            return step
    return most


def test_the_time_that_a_form_takes_is_bounded_over_all_of_its_outputs() -> None:
    assert steps_until_refused(0.001, 1, 10_000) == 10_000
    assert steps_until_refused(0.001, 100, 1000) == 1000
    alone = steps_until_refused(0.05, 1, 10_000)
    assert 1 <= alone <= MAX_CREDIT_S / 0.05
    assert steps_until_refused(0.05, 10, 10_000) <= alone / 5


def test_a_form_that_took_too_long_is_not_refused_for_ever_nor_worked_on_meanwhile() -> None:
    work, time = Clock(), Clock()
    budget = WorkBudget(work, time)
    words = np.zeros(1, dtype=np.int32)
    with pytest.raises(StructuredOutputError):
        BudgetedMatcher(SlowMatcher(work, 100.0), budget).fill_mask(words)
    for _ in range(3):
        with pytest.raises(StructuredOutputError):
            BudgetedMatcher(SlowMatcher(work, 100.0), budget).consume(0)
    assert work.now_s == 100.0
    time.now_s += 1000.0
    BudgetedMatcher(SlowMatcher(work, 0.001), budget).fill_mask(words)


def test_work_that_failed_is_accounted_for_too() -> None:
    work = Clock()
    budget = WorkBudget(work, Clock())
    with pytest.raises(ZeroDivisionError), budget.spent():
        work.now_s += 100.0
        raise ZeroDivisionError
    with pytest.raises(StructuredOutputError), budget.spent():
        pass


@pytest.mark.asyncio(loop_scope="module")
async def test_a_job_dies_with_the_compile_process_and_holds_none_of_its_lines(tmp_path: Path) -> None:
    bomb: dict[str, object] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}}
    schema["$defs"] = {**bomb, "d40": {"type": "string"}}
    slow = Form(
        structural_tag={
            "type": "structural_tag",
            "format": {"type": "qwen_xml_parameter", "json_schema": schema},
        }
    )
    compiler = GrammarCompiler(PATIENT, VOCABULARY.packed)
    await compiler.compile(Form(choice=["ready"]))
    child = compiler.child_pid
    assert child is not None
    waiting = asyncio.create_task(compiler.compile(slow))
    await wait_until(lambda: len(children(child)) == 1 and holds_nothing(children(child)[0]))
    (job,) = children(child)
    os.kill(child, signal.SIGKILL)
    await wait_until(lambda: not is_running(job))
    assert await compiler.compile(Form(choice=["after"]))
    waiting.cancel()
    await asyncio.wait({waiting})
    await compiler.shutdown()


def holds_nothing(pid: int) -> bool:
    """Whether the process has no line open but its answer's and the one for errors."""
    return len(os.listdir(f"/proc/{pid}/fd")) <= 2
