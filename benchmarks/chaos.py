"""Faults of every kind while streams run: what the clients get is compared, token by token, with undisturbed answers.

    scripts/chaos [SEED] [--rounds 20] [--clients 4] [--limit-s 900] [--rough] [--kills-only | --network]

Three servers with the demo model stand behind `qanat router`. In each round one of them, and never all, is killed
(with its server or alone), stopped for a while, slowed, left with open connections on which nothing moves, or has all
its connections reset. With `--kills-only` each round is a kill. With `--rough` the wires to the servers are late and
lossy all the time, as netem would make them. With `--network` the router and each server are hosts of their own
(network namespaces), and the network fails: a host is cut off, or cut off again and again for moments, and where the
kernel can (netem) its packets are late or lost; beside them hosts' servers are killed.

What each request must bring was asked of a server before the first fault; the model draws the same tokens for the same
seed whatever else runs, and goes on with them when it is given the first of them, so any difference is the router's.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import qanat_demo

from benchmarks.chaos_engine import ChaosEngine
from tests.netns import Host, namespaces
from tests.support.server_process import COMMAND, ServerProcess
from tests.support.wire import Wire

NUM_ENGINES = 3
KILLS = ("kill", "kill", "kill_core")
FAULTS = (*KILLS, "stop", "slow", "half_open", "reset")
ROUGH = {"delay_s": 0.05, "jitter_s": 0.02, "loss": 0.01}
"""What `Wire` does to each piece, both ways."""
NETWORK_FAULTS = ("partition", "partition", "flap", "kill")
NETEM_FAULTS = ("delay", "loss")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ROUTER_FLAGS = ["--health-interval-s", "0.5", "--health-timeout-s", "1.5", "--idle-timeout-s", "6"]
ENGINE_FLAGS = "--served-model-name demo --allow-resume --max-model-len 1024 --max-num-seqs 16".split()
SHARED = {"model": "demo", "max_tokens": 96, "ignore_eos": True}


@dataclass
class Case:
    """One request, and what it must bring: the tokens, or the text, of each choice."""

    path: str
    body: dict[str, Any]
    tokens: dict[int, list[int]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What a run is to be.

    Attributes:
        seed: of faults and requests.
        num_rounds: faults, one after the other.
        num_clients: streams at a time.
        limit_s: no new round after so many seconds.
        faults: what may happen; what stands there twice happens twice as often.
        wire: attributes of the wires to the servers.
    """

    seed: int
    num_rounds: int
    num_clients: int
    limit_s: float
    faults: tuple[str, ...] = FAULTS
    wire: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Report:
    """What the run found.

    Attributes:
        lost, duplicated, changed: tokens (characters, where no token ids were asked for) by kind of difference.
        differing: streams with such tokens, by their request id in the access log, and where they begin to differ.
        broken: streams that ended otherwise than they must: an error, no end mark, another id, other token counts.
        refused: requests that were answered with an error before their first token.
        faults: by kind.
    """

    seed: int
    streams: int = 0
    tokens: int = 0
    continued: int = 0
    retried: int = 0
    lost: int = 0
    duplicated: int = 0
    changed: int = 0
    differing: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    time_s: float = 0.0

    @property
    def is_good(self) -> bool:
        """Nothing was lost, duplicated or changed, and no stream broke."""
        return not (self.lost or self.duplicated or self.changed or self.broken or self.refused)


def tell(line: str) -> None:
    """One line for the person who runs this, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def cases(rng: random.Random) -> list[Case]:
    """Greedy and drawn, one choice and two, with token ids and without."""
    made = []
    for number in range(8):
        body: dict[str, Any] = {**SHARED, "temperature": number % 2, "seed": rng.randrange(1000)}
        if number % 4 < 2:
            body["messages"] = [
                {"role": "user", "content": f"What is {rng.randrange(99)} + {rng.randrange(99)}?"}
            ]
            made.append(Case(CHAT, body))
        else:
            body["prompt"] = f"{rng.randrange(99)} + {rng.randrange(99)} ="
            body["n"] = 2
            made.append(Case(COMPLETIONS, body))
        made.append(Case(made[-1].path, {**body, "return_token_ids": True}))
    return made


async def fill_in(case: Case, url: str) -> bool:
    """Asks an undisturbed server for the whole answer; False if the same server, resuming it, says something else."""
    body = {**case.body, "return_token_ids": True}
    async with httpx.AsyncClient(timeout=120) as client:
        answer = (await client.post(url + case.path, json=body)).json()
        tokens = [choice["token_ids"] for choice in sorted(answer["choices"], key=lambda each: each["index"])]
        resume = {"output_token_ids": [ids[: len(ids) // 4] for ids in tokens]}
        again = (await client.post(url + case.path, json={**body, "resume": resume})).json()
    for choice in answer["choices"]:
        message = choice.get("message", {})
        parts = (message.get("reasoning"), message.get("content"), choice.get("text"))
        case.texts[choice["index"]] = "".join(part or "" for part in parts)
        case.tokens[choice["index"]] = choice["token_ids"]
    return {choice["index"]: choice["token_ids"] for choice in again["choices"]} == case.tokens


class Load:
    """Clients that ask without pause until they are told to end."""

    def __init__(self, url: str, asked: Sequence[Case], report: Report, rng: random.Random) -> None:
        self._url = url
        self._asked = asked
        self._report = report
        self._rng = rng
        self.is_over = False
        self._num_sent = 0

    async def run(self) -> None:
        """One client."""
        async with httpx.AsyncClient(timeout=120) as client:
            while not self.is_over:
                case = self._rng.choice(self._asked)
                try:
                    await self._stream(client, case)
                except httpx.HTTPError as error:
                    self._report.broken.append(f"{case.path}: {type(error).__name__}: {error}")

    async def _stream(self, client: httpx.AsyncClient, case: Case) -> None:
        body = {**case.body, "stream": True, "stream_options": {"include_usage": True}}
        self._num_sent += 1
        name = f"chaos-{self._num_sent}"
        headers = {"x-request-id": name}
        async with client.stream("POST", self._url + case.path, json=body, headers=headers) as response:
            content = await response.aread()
        if response.status_code != 200:
            self._report.refused.append(f"{response.status_code} {content[:200].decode(errors='replace')}")
            await asyncio.sleep(0.2)
            return
        self._report.streams += 1
        self._compare(case, content, name)

    def _compare(self, case: Case, content: bytes, name: str) -> None:
        *events, last = content.decode().removesuffix("\n\n").split("\n\n")
        chunks = [json.loads(event.removeprefix("data: ")) for event in events]
        texts: dict[int, str] = dict.fromkeys(case.texts, "")
        tokens: dict[int, list[int]] = {index: [] for index in case.tokens}
        num_tokens = None
        for chunk in chunks:
            num_tokens = (chunk.get("usage") or {}).get("completion_tokens", num_tokens)
            for choice in chunk.get("choices", ()):
                delta = choice.get("delta", {})
                parts = (delta.get("reasoning"), delta.get("content"), choice.get("text"))
                texts[choice["index"]] += "".join(part or "" for part in parts)
                tokens[choice["index"]] += choice.get("token_ids", [])
        expected = sum(map(len, case.tokens.values()))
        self._report.tokens += expected
        if (
            last != "data: [DONE]"
            or num_tokens != expected
            or len({chunk.get("id") for chunk in chunks}) != 1
        ):
            self._report.broken.append(
                f"{case.path}: {num_tokens} of {expected} tokens, ends with {last[:300]}"
            )
        for index in case.tokens:
            if case.body.get("return_token_ids"):
                self._count(case.tokens[index], tokens[index], name)
            self._count(case.texts[index], texts[index], name)

    def _count(self, wanted: Sequence[Any], got: Sequence[Any], name: str) -> None:
        if wanted == got:
            return
        same = next(
            (n for n, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]), "the end"
        )
        self._report.differing.append(f"{name}: from {same} of {len(wanted)} on")
        matcher = difflib.SequenceMatcher(None, wanted, got, autojunk=False)
        for kind, begin, end, got_begin, got_end in matcher.get_opcodes():
            if kind == "delete":
                self._report.lost += end - begin
            elif kind == "insert":
                self._report.duplicated += got_end - got_begin
            elif kind == "replace":
                self._report.changed += max(end - begin, got_end - got_begin)


async def rounds(
    engines: Sequence[ChaosEngine], report: Report, rng: random.Random, plan: Plan, end_s: float
) -> None:
    """One fault after the other, each once all engines are ready."""
    for number in range(plan.num_rounds):
        while not all([await engine.is_ready() for engine in engines]):
            if time.monotonic() > end_s:
                return
            await asyncio.sleep(0.2)
        position, fault = rng.randrange(len(engines)), rng.choice(plan.faults)
        time_s = rng.uniform(1.0, 6.0)
        await asyncio.sleep(rng.uniform(0.1, 2.0))
        num_before = report.streams
        action = getattr(engines[position], fault)
        await (action() if fault.startswith("kill") else action(time_s))
        report.faults[fault] += 1
        tell(
            f"round {number + 1:2}: engine {position} {fault:9}  {report.streams - num_before} streams meanwhile"
        )


async def chaos(plan: Plan, hosts: Sequence[Host | None]) -> Report:
    """The whole run, with an engine on each of these hosts."""
    rng = random.Random(plan.seed)
    report = Report(plan.seed)
    begin_s = time.monotonic()
    model = str(qanat_demo.model_path())
    engines = [
        ChaosEngine([model, *ENGINE_FLAGS], host, Wire(rng=random.Random(plan.seed), **plan.wire))  # type: ignore[arg-type]
        for host in hosts
    ]
    log = Path(tempfile.mkdtemp(prefix="qanat-chaos-")) / "access.jsonl"
    router: ServerProcess | None = None
    try:
        await asyncio.gather(*(engine.start() for engine in engines))
        asked = cases(rng)
        are_good = await asyncio.gather(*(fill_in(case, engines[0].direct_url) for case in asked))
        tell(f"{len(asked)} requests, of which their engine itself resumes {are_good.count(False)} otherwise")
        report.broken += [
            f"{case.path}: its engine resumes it otherwise"
            for case, is_good in zip(asked, are_good, strict=True)
            if not is_good
        ]
        urls = [engine.url for engine in engines]
        command = [*COMMAND, "router"]
        router = ServerProcess([*urls, "--access-log", str(log), *ROUTER_FLAGS], command=command)
        await asyncio.to_thread(router.__enter__)
        load = Load(router.base_url, asked, report, random.Random(plan.seed + 1))
        clients = [asyncio.create_task(load.run()) for _ in range(plan.num_clients)]
        await rounds(engines, report, rng, plan, begin_s + plan.limit_s)
        load.is_over = True
        await asyncio.gather(*clients)
    finally:
        if router is not None:
            await asyncio.to_thread(router.stop)
        await asyncio.gather(*(engine.end() for engine in engines))
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        report.continued += entry["continued"]
        report.retried += entry["retries"]
    if report.is_good:
        shutil.rmtree(log.parent)
    else:
        tell(f"the router's access log: {log}")
    report.time_s = round(time.monotonic() - begin_s, 1)
    return report


def over_a_network(plan: Plan) -> Report:
    """The run with the router and each engine on a host of its own.

    Raises:
        pytest.skip.Exception: there are no network namespaces here.
    """
    with namespaces(NUM_ENGINES + 1) as (front, *hosts):
        faults: tuple[str, ...] = NETWORK_FAULTS
        try:
            hosts[0].slow_down()
            faults += NETEM_FAULTS
        except pytest.skip.Exception as missing:
            tell(f"without late packets and single lost ones: {missing.msg}")
        # The router and the clients are made by this thread and those that it starts, so they are on this host, too.
        with front.inside():
            return asyncio.run(chaos(replace(plan, faults=faults), hosts))


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Faults of every kind while streams run through qanat router."
    )
    parser.add_argument("seed", nargs="?", type=int, default=0, help="of faults and requests")
    parser.add_argument("--rounds", type=int, default=20, help="faults, one after the other")
    parser.add_argument("--clients", type=int, default=4, help="streams at a time")
    parser.add_argument("--limit-s", type=float, default=900.0, help="no new round after so many seconds")
    parser.add_argument("--json", type=Path, help="file for the report")
    parser.add_argument(
        "--rough", action="store_true", help="wires of 50 to 70 ms that lose 1 %% (without --network)"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--kills-only", action="store_true", help="every fault is a kill")
    kinds.add_argument("--network", action="store_true", help="hosts of their own, whose network fails")
    arguments = parser.parse_args()
    plan = Plan(arguments.seed, arguments.rounds, arguments.clients, arguments.limit_s)
    if arguments.network:
        try:
            report = over_a_network(plan)
        except pytest.skip.Exception as missing:
            tell(f"nothing was tried: {missing.msg}")
            return 0
    else:
        faults = KILLS if arguments.kills_only else FAULTS
        plan = replace(plan, faults=faults, wire=ROUGH if arguments.rough else {})
        report = asyncio.run(chaos(plan, [None] * NUM_ENGINES))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    num_faults = sum(report.faults.values())
    tell(f"{num_faults} faults ({', '.join(f'{n} {kind}' for kind, n in sorted(report.faults.items()))})")
    tell(f"{report.streams} streams, {report.tokens} tokens in {report.time_s:g} s")
    tell(f"{report.continued} continuations, {report.retried} retries, {len(report.refused)} refused")
    tell(f"tokens lost {report.lost}, duplicated {report.duplicated}, changed {report.changed}")
    for what in report.differing:
        tell(f"differs: {what}")
    for what in (*report.broken, *report.refused):
        tell(f"broken: {what}")
    if num_faults < arguments.rounds:
        tell(f"the time was over after {num_faults} of {arguments.rounds} rounds")
    is_good = report.is_good and num_faults == arguments.rounds
    tell("good" if is_good else "NOT good")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
