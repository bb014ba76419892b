"""`qanat bench serve` against a server that answers by a script and writes down when it did."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.bench_actions.refused_flags import refuse_flags
from qanat.cli.bench_actions.serve_flags import REFUSED, BenchServeFlags
from qanat.cli.main import main
from qanat.config.options import options_of
from tests.support.delayed_process import DelayedServer, delayed_server
from tests.support.server_process import free_port

RESULT_KEYS = """
date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration
completed failed total_input_tokens total_output_tokens request_throughput request_goodput output_throughput
total_token_throughput max_output_tokens_per_s max_concurrent_requests rtfx
""".split()
DETAIL_KEYS = "input_lens output_lens ttfts itls start_times generated_texts errors".split()
REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "vllm_ascend"
TOLERANCE_S = 0.001
CAN_BE_BUSY = (0, 3)
"""Exit codes of a run that measured: on a busy machine the client may be late, which the verdict says."""


@pytest.fixture(scope="module")
def stub() -> Iterator[DelayedServer]:
    with delayed_server() as running:
        yield running


@dataclass(frozen=True)
class Bench:
    """Runs the command and gives the file that it writes."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(
        self, stub: DelayedServer, script: object, *flags: str, codes: Sequence[int] = CAN_BE_BUSY
    ) -> dict[str, Any]:
        body = script if isinstance(script, dict) else {"script": script}
        path = self.folder / "result.json"
        path.unlink(missing_ok=True)
        code = main(
            [
                *("bench", "serve", "--port", str(stub.port), "--extra-body", json.dumps(body)),
                *("--input-len", "20", "--save-result", "--save-detailed", "--result-dir", str(self.folder)),
                *("--result-filename", path.name, "--percentile-metrics", "ttft,tpot,itl,e2el", *flags),
            ]
        )
        assert code in codes, self.capsys.readouterr()
        result: dict[str, Any] = json.loads(path.read_text(), parse_constant=pytest.fail)
        return result


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


def recorded(stub: DelayedServer, prefix: str, count: int) -> list[dict[str, Any]]:
    record = stub.record()
    return [record[f"{prefix}{number}"] for number in range(count)]


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_every_metric_agrees_with_the_servers_own_record_under_a_stall(
    stub: DelayedServer, bench: Bench, backend: str
) -> None:
    """One request in sixty stalls for 300 ms in its middle, and one waits as long for its first token."""
    usual = {"script": [[20, 1], *[[4, 1]] * 9]}
    stalled = {"script": [[20, 1], *[[4, 1]] * 4, [300, 1], *[[4, 1]] * 4]}
    slow = {"script": [[320, 1], *[[4, 1]] * 9]}
    scripts = [usual] * 28 + [stalled] + [usual] * 30 + [slow]
    flags = ("--num-prompts", "120", "--request-rate", "120", "--backend", backend)
    prefix = f"stall-{backend}-"
    result = bench(
        stub, {"scripts": scripts}, *flags, "--request-id-prefix", prefix, "--metric-percentiles", "50,99"
    )
    assert result["completed"] == 120 and result["total_output_tokens"] == 1200
    record = recorded(stub, prefix, 120)
    # Each figure is the server's own plus what the way took, which the arrivals themselves say; both share a clock.
    first_s = [(one["written_ns"][0] - one["received_ns"]) / 1e9 for one in record]
    e2e_s = [(one["written_ns"][-1] - one["received_ns"]) / 1e9 for one in record]
    gaps_s = [
        [(b - a) / 1e9 for a, b in zip(one["written_ns"], one["written_ns"][1:], strict=False)]
        for one in record
    ]
    client_gaps = result["itls"]
    ways = [
        way
        for one, first, gaps in zip(record, result["ttfts"], client_gaps, strict=True)
        for way in _ways(one, first, gaps)
    ]
    assert min(ways) > -TOLERANCE_S  # nothing arrives before it is sent
    for ours, theirs in zip(client_gaps, gaps_s, strict=True):
        assert len(ours) == len(theirs) == 9
        assert sum(ours) == pytest.approx(sum(theirs), abs=max(ways) + TOLERANCE_S)
    for name, theirs_s in (("ttft", first_s), ("e2el", e2e_s)):
        for key, value in (
            ("mean", statistics.fmean(theirs_s)),
            ("p50", percentile(theirs_s, 50)),
            ("p99", percentile(theirs_s, 99)),
        ):
            assert value * 1e3 - 1 <= result[f"{key}_{name}_ms"] <= (value + max(ways)) * 1e3 + 1, (name, key)
    assert result["p99_ttft_ms"] > 150
    flat = [gap for gaps in client_gaps for gap in gaps]
    assert result["p99_itl_ms"] == pytest.approx(1e3 * percentile(flat, 99))
    assert result["mean_itl_ms"] == pytest.approx(1e3 * statistics.fmean(flat))
    tpots = [(one - first) / 9 for one, first in zip(_e2els(result), result["ttfts"], strict=True)]
    assert result["mean_tpot_ms"] == pytest.approx(1e3 * statistics.fmean(tpots), abs=1)
    longest_s = max(gap for gaps in gaps_s for gap in gaps)
    assert longest_s - max(ways) - TOLERANCE_S < max(flat)  # the stall is there


def _ways(record: dict[str, Any], first_s: float, gaps_s: Sequence[float]) -> list[float]:
    """How long each chunk of a request was on its way, the request's own way included."""
    arrivals_s = itertools.accumulate(gaps_s, initial=first_s)
    written_s = ((at - record["received_ns"]) / 1e9 for at in record["written_ns"])
    return [arrived - written for arrived, written in zip(arrivals_s, written_s, strict=True)]


def _e2els(result: dict[str, Any]) -> list[float]:
    return [first + sum(gaps) for first, gaps in zip(result["ttfts"], result["itls"], strict=True)]


@pytest.mark.parametrize("usage", ["running", "final", "none"])
def test_several_tokens_in_a_chunk_count_as_such(stub: DelayedServer, bench: Bench, usage: str) -> None:
    script = {"script": [[10, 4], *[[10, 4]] * 9], "usage": usage, "chunk_bytes": 7}
    result = bench(stub, script, "--num-prompts", "12", "--record-memory", "0")
    own = result["qanat"]
    assert own["client"]["num_file_bytes"] > 1000  # nothing was kept in memory
    if usage == "none":  # nothing but the number of chunks is known, which is said
        assert result["total_output_tokens"] == 120
        assert own["outputs"]["counted_by"] == {"number of chunks": 12}
        assert "not_counted" in {finding["code"] for finding in own["findings"]}
        return
    assert result["total_output_tokens"] == 480
    assert [len(gaps) for gaps in result["itls"]] == [39] * 12
    assert [len(gaps) for gaps in result["chunk_gaps"]] == [9] * 12
    assert result["mean_tpot_ms"] == pytest.approx(own["chunk_gaps"]["mean_chunk_gap_ms"] * 9 / 39, rel=0.05)
    assert result["output_throughput"] == pytest.approx(480 / result["duration"])


def test_a_held_back_schedule_shows_in_the_latency(stub: DelayedServer, bench: Bench) -> None:
    """25 requests a second fit, a hundred are asked for: latency grows though each is answered in 40 ms."""
    flags = ("--request-rate", "100", "--burstiness", "inf", "--max-concurrency", "1", "--num-prompts")
    result = bench(stub, [[20, 1], [20, 1]], *flags, "40")
    sent = result["qanat"]["from_sent"]
    last_s = result["end_times"][-1] - result["intended_times"][-1]
    assert _e2els(result)[-1] <= last_s + TOLERANCE_S
    assert result["p99_e2el_ms"] == pytest.approx(1e3 * percentile(_e2els(result), 99), abs=1)
    assert result["p99_e2el_ms"] > 5 * sent["median_e2el_ms"]
    codes = {finding["code"] for finding in result["qanat"]["findings"]}
    assert {"rate_not_reached", "drift"} <= codes
    other = bench(stub, [[20, 1], [20, 1]], *flags, "10", "--latency-from", "sent")
    assert 2 * other["mean_e2el_ms"] < other["qanat"]["from_intended"]["mean_e2el_ms"]


def test_without_a_rate_a_free_place_is_the_schedule(stub: DelayedServer, bench: Bench) -> None:
    result = bench(stub, [[20, 1], [5, 1]], "--num-prompts", "30", "--max-concurrency", "3")
    assert result["max_concurrent_requests"] == 3
    assert result["qanat"]["client"]["wait_for_place_ms"]["max"] == 0
    assert result["intended_times"][:3] == [0, 0, 0] and min(result["intended_times"][3:]) > 0.02
    assert result["qanat"]["client"]["num_connections"] <= 3


def test_a_report_always_comes_and_failures_have_a_kind(stub: DelayedServer, bench: Bench) -> None:
    good = {"script": [[2, 1], [2, 1]]}
    scripts = [
        good,
        {"status": 500},
        {"script": []},
        {"script": [[2, 1]]},
        {"script": [[2, 1], [2, 1]], "ending": "cut"},
        {"script": [[2, 1]], "ending": "never"},
    ]
    result = bench(stub, {"scripts": scripts}, "--num-prompts", "30", "--timeout-s", "5")
    assert result["qanat"]["failures"] == {"http_500": 5, "empty": 5, "cut": 5, "timeout": 5}
    assert (result["completed"], result["failed"]) == (10, 20)
    assert len([gaps for gaps in result["itls"] if gaps]) == 5  # one token has no gap
    nothing = bench(stub, {"status": 500}, "--num-prompts", "3", codes=(1,))
    assert (nothing["completed"], nothing["failed"], nothing["mean_ttft_ms"]) == (0, 3, None)
    refused = bench(DelayedServer(free_port()), good, "--num-prompts", "3", codes=(1,))
    assert (refused["completed"], refused["failed"], refused["p99_itl_ms"]) == (0, 0, None)
    assert "nothing listens on" in refused["qanat"]["notes"][0]


def test_answers_in_one_piece_have_no_first_token(stub: DelayedServer, bench: Bench) -> None:
    result = bench(stub, [[5, 1], [5, 1]], "--num-prompts", "5", "--no-streaming")
    assert result["total_output_tokens"] == 10
    assert [result[f"mean_{name}_ms"] for name in ("ttft", "tpot", "itl")] == [None] * 3
    assert result["mean_e2el_ms"] >= 10
    single = bench(stub, [[5, 6]], "--num-prompts", "5")
    assert single["qanat"]["outputs"]["num_single_chunk"] == 5
    assert "single_chunk" in {finding["code"] for finding in single["qanat"]["findings"]}


def test_the_result_has_vllms_keys_and_those_of_metadata(stub: DelayedServer, bench: Bench) -> None:
    flags = (
        "--num-prompts",
        "10",
        "--metadata",
        "tp=4",
        "note=a=b",
        "--label",
        "mine",
        "--goodput",
        "ttft:4000",
    )
    result = bench(stub, [[5, 1], [5, 1]], *flags, "--metric-percentiles", "90,99.9")
    assert result.keys() >= {*RESULT_KEYS, *DETAIL_KEYS}
    for name in ("ttft", "tpot", "itl", "e2el"):
        assert result.keys() >= {f"{key}_{name}_ms" for key in ("mean", "median", "std", "p90", "p99.9")}
    assert (result["tp"], result["note"], result["label"], result["request_rate"]) == (
        "4",
        "a=b",
        "mine",
        "inf",
    )
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert result["input_lens"] == [20] * 10 and result["model_id"] == "scripted"
    assert result["generated_texts"] == [" word word"] * 10


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference is not beside this checkout")
def test_the_keys_and_flags_are_those_of_the_reference() -> None:
    tools = json.loads((REFERENCE / "tools.json").read_text())["vllm_bench_serve"]["result_json"]
    listed = [key for key in (*tools["run"], *tools["totals"]) if not key.startswith("<")]
    assert sorted(RESULT_KEYS) == sorted(listed)
    assert tools["detailed (--save-detailed)"] == DETAIL_KEYS
    flags = json.loads((REFERENCE / "bench_flags.json").read_text())["subcommands"]["serve"]
    ours = set()
    for base in BenchServeFlags.__mro__[:-1]:
        for one in options_of(base):
            ours |= {one.flag, *one.aliases}
    assert set(flags) - ours == {f"--{name}" for name in REFUSED if f"--{name}" in flags}
    assert not {name for name in REFUSED if f"--{name}" in ours}


def test_the_servers_own_figures_are_those_of_this_run(stub: DelayedServer, bench: Bench) -> None:
    words = {"script": [[2, 1], *[[1, 1]] * 29], "num_drafts": 10, "text": " word#"}
    loop = {**words, "text": " word"}
    result = bench(stub, words, "--num-prompts", "8", "--num-warmups", "4")
    assert result["spec_decode_num_drafts"] == 80 and result["spec_decode_acceptance_rate"] == 50
    assert result["spec_decode_acceptance_length"] == 1.5
    assert result["spec_decode_per_position_acceptance_rates"] == [0.5]
    assert result["qanat"]["server"]["queue_time"] == pytest.approx(
        {"count": 8, "mean_ms": 4, "median_ms": 5, "p99_ms": 9.9}
    )
    assert result["qanat"]["server"]["prompt_tokens"] == 160
    assert "repetition" not in {finding["code"] for finding in result["qanat"]["findings"]}
    looped = bench(stub, loop, "--num-prompts", "8")
    assert "repetition" in {finding["code"] for finding in looped["qanat"]["findings"]}


@pytest.mark.parametrize("interval", ["0.02", "0"])
def test_the_servers_figures_are_read_during_the_run(
    stub: DelayedServer, bench: Bench, interval: str
) -> None:
    script = {"script": [[20, 1], *[[5, 1]] * 30], "num_drafts": 10}
    flags = ("--num-prompts", "12", "--max-concurrency", "3", "--metrics-interval-s", interval)
    timeline = bench(stub, script, *flags)["qanat"]["timeline"]
    if interval == "0":
        assert timeline is None
        return
    assert len(timeline["times_s"]) > 3 and timeline["times_s"] == sorted(timeline["times_s"])
    for name, value in (("queue_time_ms", 4), ("acceptance_percent", 50)):
        told = [one for one in timeline["series"][name] if one is not None]
        assert told and told == pytest.approx([value] * len(told))


def test_conversations_go_on_with_what_was_answered(stub: DelayedServer, bench: Bench) -> None:
    flags = ("--backend", "openai-chat", "--dataset-name", "multi-turn", "--multi-turn-num-turns", "3")
    result = bench(stub, [[2, 1], [2, 1]], *flags, "--num-prompts", "4", "--request-id-prefix", "talk-")
    assert result["completed"] == 12
    record = recorded(stub, "talk-", 12)
    assert all(len(one["written_ns"]) == 2 for one in record)


def test_results_are_appended_as_lines(
    stub: DelayedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = json.dumps({"script": [[1, 1]]})
    flags = ("--num-prompts", "2", "--extra-body", script, "--input-len", "3", "--append-result")
    target = ("bench", "serve", "--port", str(stub.port), "--result-dir", str(tmp_path))
    for _ in range(2):
        assert main([*target, *flags, "--result-filename", "all.jsonl"]) in CAN_BE_BUSY
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert [json.loads(line)["completed"] for line in lines] == [2, 2]
    assert main([*target, *flags[:-1], "--save-result", "--request-rate", "50"]) in CAN_BE_BUSY
    assert len(list(tmp_path.glob("openai-50.0qps-scripted-*.json"))) == 1
    output = capsys.readouterr().out
    assert output.startswith("============ Serving Benchmark Result ============\nSuccessful requests:")
    assert "Mean TTFT (ms):  " in output and "Verdict: " in output


def test_the_guides_command_is_understood(
    stub: DelayedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As two of the guides write it, but for server, number and rate."""
    command = (
        "--model Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp --served-model-name qwen3.5 --dataset-name random "
        f"--random-input 200 --num-prompts 4 --request-rate 100 --save-result --result-dir {tmp_path}"
    )
    script = ("--extra-body", '{"script": [[1, 1]]}')
    assert main(["bench", "serve", "--port", str(stub.port), *command.split(), *script]) in CAN_BE_BUSY
    (path,) = tmp_path.glob("openai-100.0qps-Qwen3.5-397B-A17B-w8a8-mtp-*.json")
    result = json.loads(path.read_text())
    assert (result["total_input_tokens"], result["model_id"]) == (800, "Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp")
    assert "--random-input: an abbreviation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--hf-name x/y", "--hf-name is not offered: data sets of a hub"),
        ("--no-stream", "--no-streaming asks for answers in one piece"),
        ("--plot_timeline", "--plot-timeline is not offered"),
        ("--request-rat 3 --request-rates 3", "unknown flag --request-rates"),
        ("--request-rate fast", "--request-rate fast: a number, or inf"),
        ("--request-rate 0", "more than 0, or inf"),
        ("--dataset-name hf", "choose of random, sharegpt"),
        ("--sharegpt-output-len 5", "--sharegpt-output-len has no effect on --dataset-name random"),
        ("--dataset-name custom", "needs its file"),
        ("--dataset-path x.json", "random reads no file"),
        ("--goodput itl:3", "milliseconds for ttft, tpot or e2el"),
        ("--percentile-metrics ttft,speed", "choose of ttft, tpot, itl, e2el"),
        ("--metric-percentiles 101", "from 0 to 100"),
        ("--save-detailed", "--save-detailed has no effect without --save-result"),
        ("--metadata x", "KEY=VALUE is expected"),
        ("--header secret", "NAME=VALUE is expected"),
        ("--endpoint /v1/chat/completions", "choose --backend openai-chat"),
        ("--backend tgi", "not one of openai, vllm, openai-chat"),
        ("--ramp-up-strategy linear", "go together"),
        ("--random-range-ratio 2", "a number from 0 to below 1"),
        ("--chat-template-kwargs {}", "completions have no template"),
        ("--base-url 10.0.0.1:8000", "did you mean http://10.0.0.1:8000"),
        ("--tokenizer-mode slow more", "more belongs to no flag"),
        ("--dataset-name multi_turn --num-prompts 2", "is a conversation: --backend openai-chat"),
    ],
)
def test_mistakes_are_named(
    stub: DelayedServer, flags: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "serve", "--port", str(stub.port), *flags.split()]) == 2
    assert said in capsys.readouterr().err


def test_every_refused_flag_says_why() -> None:
    for name in REFUSED:
        with pytest.raises(Exception, match=f"--{name} is not offered"):
            refuse_flags([f"--{name}", "1"], REFUSED)
