"""Health from looks, on a clock that tests set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.router.vitals import Finding, Look, Verdict, VitalRules, Vitals

RULES = VitalRules(max_silent=2, stall_s=60)
OK, SICK, REFUSED, SILENT, BROKEN = Finding.OK, Finding.SICK, Finding.REFUSED, Finding.SILENT, Finding.BROKEN


def vitals() -> Vitals:
    return Vitals(0.0, RULES)


def test_an_idle_engine_that_answers_is_healthy_for_ever() -> None:
    one = vitals()
    assert all(one.look(now_s, Look(OK)) is Verdict.HEALTHY for now_s in range(0, 10_000, 100))


def test_one_that_refuses_or_says_it_is_ill_is_out_at_once_and_back_at_once() -> None:
    one = vitals()
    assert one.look(1, Look(REFUSED)) is Verdict.REFUSED
    assert one.look(2, Look(SICK)) is Verdict.SICK
    assert one.look(3, Look(OK)) is Verdict.HEALTHY


def test_two_misses_in_a_row_take_it_out() -> None:
    one = vitals()
    assert one.look(1, Look(SILENT)) is Verdict.WAIT
    assert one.look(2, Look(OK)) is Verdict.HEALTHY
    assert one.look(3, Look(SILENT)) is Verdict.WAIT
    assert one.look(4, Look(SILENT)) is Verdict.SILENT
    assert one.look(5, Look(SILENT)) is Verdict.SILENT


def test_broken_connections_take_it_out_without_giving_up_its_streams() -> None:
    one = vitals()
    assert one.look(1, Look(BROKEN, num_running=1)) is Verdict.WAIT
    assert one.look(2, Look(BROKEN, num_running=1)) is Verdict.REFUSED
    assert one.look(3, Look(OK, num_running=1)) is Verdict.HEALTHY


def test_one_that_says_it_is_ill_and_moves_nothing_is_given_up() -> None:
    one = vitals()
    assert one.look(0, Look(SICK, num_running=1, num_pieces=1)) is Verdict.SICK
    assert one.look(59, Look(SICK, num_running=1, num_pieces=1)) is Verdict.SICK
    assert one.look(60, Look(SICK, num_running=1, num_pieces=1)) is Verdict.SILENT
    assert one.look(61, Look(SICK, num_running=1, num_pieces=2)) is Verdict.SICK


def test_an_engine_too_busy_for_health_is_alive_while_its_streams_move() -> None:
    one = vitals()
    for number in range(1, 100):
        assert one.look(number, Look(SILENT, num_running=8, num_pieces=number)) is Verdict.HEALTHY
    assert one.look(100, Look(SILENT, num_running=8, num_pieces=99)) is Verdict.WAIT
    assert one.look(101, Look(SILENT, num_running=8, num_pieces=99)) is Verdict.SILENT


def test_a_long_prefill_is_asked_for_a_token_and_lives_on_when_it_comes() -> None:
    one = vitals()
    for now_s in range(0, 60, 2):
        assert one.look(now_s, Look(OK, num_running=1)) is Verdict.HEALTHY
    assert one.look(60, Look(OK, num_running=1)) is Verdict.ASK
    assert one.look(62, Look(OK, num_running=1)) is Verdict.WAIT  # asked once, not at each look
    assert one.answered(63) is Verdict.HEALTHY
    assert one.look(64, Look(OK, num_running=1)) is Verdict.HEALTHY
    assert one.look(123, Look(OK, num_running=1)) is Verdict.ASK


def test_an_engine_whose_own_counters_move_is_not_even_asked() -> None:
    one = vitals()
    for now_s in range(0, 600, 2):
        look = Look(OK, num_running=1, num_engine_tokens=100.0 + now_s // 40)
        assert one.look(now_s, look) is Verdict.HEALTHY


def test_without_a_token_it_is_out_until_it_shows_one() -> None:
    one = vitals()
    one.look(0, Look(OK, num_running=1, num_pieces=5))
    assert one.look(60, Look(OK, num_running=1, num_pieces=5)) is Verdict.ASK
    assert one.unanswered() is Verdict.SILENT
    assert one.owes_token
    assert one.look(121, Look(OK, num_pieces=5)) is Verdict.ASK  # /health alone does not bring it back
    assert one.look(122, Look(OK, num_pieces=5)) is Verdict.WAIT
    assert one.unanswered() is Verdict.SILENT
    assert one.look(190, Look(OK, num_pieces=5)) is Verdict.ASK
    assert one.answered(191) is Verdict.HEALTHY
    assert one.look(192, Look(OK, num_pieces=5)) is Verdict.HEALTHY


def test_a_stream_that_moves_again_brings_it_back() -> None:
    one = vitals()
    one.look(0, Look(OK, num_running=1))
    one.look(60, Look(OK, num_running=1))
    one.unanswered()
    assert one.look(130, Look(OK, num_running=1, num_pieces=1)) is Verdict.HEALTHY


def test_a_new_process_owes_nothing() -> None:
    one = vitals()
    one.look(0, Look(OK, num_running=1))
    one.look(60, Look(OK, num_running=1))
    one.unanswered()
    assert one.look(121, Look(REFUSED)) is Verdict.REFUSED
    assert one.look(130, Look(OK)) is Verdict.HEALTHY


def test_a_late_no_after_the_stream_moved_takes_nobody_out() -> None:
    one = vitals()
    one.look(0, Look(OK, num_running=1))
    assert one.look(60, Look(OK, num_running=1)) is Verdict.ASK
    assert one.look(62, Look(OK, num_running=1, num_pieces=1)) is Verdict.HEALTHY
    assert one.unanswered() is Verdict.WAIT


looks = st.lists(
    st.tuples(
        st.sampled_from([OK, OK, SICK, REFUSED, SILENT, BROKEN]),
        st.integers(0, 2),
        st.booleans(),
        st.floats(0, 40),
        st.sampled_from([None, None, "yes", "no"]),
    ),
    max_size=60,
)


@given(looks)
def test_who_moves_is_never_given_up_and_who_answers_comes_back(
    steps: list[tuple[Finding, int, bool, float, str | None]],
) -> None:
    one = vitals()
    now_s, num_pieces = 0.0, 0
    for finding, num_running, moves, later_s, reply in steps:
        now_s += later_s
        num_pieces += moves
        verdict = one.look(now_s, Look(finding, num_running, num_pieces))
        if moves:
            assert verdict not in (Verdict.SILENT, Verdict.ASK, Verdict.WAIT)
        if verdict is Verdict.ASK and reply:
            assert (one.answered(now_s) if reply == "yes" else one.unanswered()) is not Verdict.WAIT
    for _ in range(3):
        now_s += 1
        verdict = one.look(now_s, Look(OK, 0, num_pieces))
        if verdict in (Verdict.ASK, Verdict.WAIT):
            verdict = one.answered(now_s)
    assert verdict is Verdict.HEALTHY
