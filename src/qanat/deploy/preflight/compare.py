"""Results of comparing two nodes; both ends make them of the same facts."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.preflight.known import failure, good, threshold, unknown, warning
from qanat.deploy.preflight.peer_facts import PeerFacts
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.session import Measured


def compare(agent: PeerFacts, peer: PeerFacts, measured: Measured) -> tuple[Result, ...]:
    """What two nodes of one plan have to agree on.

    Args:
        agent: the node that waited.
        peer: the node that came.
        measured: between them.
    """
    results = [*_plans(agent, peer), *_versions(agent, peer), *_npus(agent), *_npus(peer), *_tls(agent, peer)]
    results += [*_models(agent, peer), _clock(agent, peer, measured), *_ports(agent, peer, measured)]
    return (*results, *_bandwidth(agent, peer, measured))


def _plans(agent: PeerFacts, peer: PeerFacts) -> Iterator[Result]:
    if agent.node == peer.node:
        yield failure(
            "peer-plan", f"both hosts ({agent.host} and {peer.host}) are {agent.node}", fix="Give --node."
        )
    if agent.plan != peer.plan:
        seen = f"{agent.node} has plan {agent.plan}, {peer.node} has plan {peer.plan}"
        yield failure("peer-plan", seen)
    elif agent.node != peer.node:
        yield good("peer-plan", f"{agent.node} and {peer.node} have plan {agent.plan}")


def _versions(agent: PeerFacts, peer: PeerFacts) -> Iterator[Result]:
    pairs = [("image", agent.image, peer.image), ("driver", agent.driver, peer.driver)]
    pairs.append(("qanat", agent.qanat, peer.qanat))
    if agent.packages and peer.packages:
        names = sorted({*agent.packages, *peer.packages})
        pairs += [(name, agent.packages.get(name, "none"), peer.packages.get(name, "none")) for name in names]
    same = []
    for name, one, other in pairs:
        if not one or not other:
            yield unknown(
                "peer-versions", f"{name}: {agent.node} {one or 'unknown'}, {peer.node} {other or 'unknown'}"
            )
        elif one != other:
            seen = f"{name}: {agent.node} has {one}, {peer.node} has {other}"
            # This program's own version changes nothing for the engines.
            yield warning("peer-versions", seen) if name == "qanat" else failure("peer-versions", seen)
        else:
            same.append(f"{name} {one}")
    if same:
        yield good("peer-versions", f"alike: {', '.join(same)}")


def _npus(facts: PeerFacts) -> Iterator[Result]:
    names = ", ".join(dict.fromkeys(facts.chips))
    if not facts.chips:
        yield unknown("peer-npus", f"{facts.node} sees no NPU")
    elif len(facts.chips) < facts.num_planned:
        yield failure(
            "peer-npus", f"{facts.node} has {len(facts.chips)} of {facts.num_planned} NPUs ({names})"
        )
    else:
        yield good("peer-npus", f"{facts.node} has its {len(facts.chips)} NPUs ({names})")


def _tls(agent: PeerFacts, peer: PeerFacts) -> Iterator[Result]:
    if not agent.tls or not peer.tls:
        return
    states = {"0": "off", "1": "on"}
    told = [f"{each.node} {'/'.join(states.get(one, one) for one in each.tls)}" for each in (agent, peer)]
    if len({*agent.tls, *peer.tls}) > 1:
        yield failure("npu-tls", f"TLS of the NPUs' ports differs: {', '.join(told)}")
    else:
        yield good("npu-tls", f"TLS of the NPUs' ports: {', '.join(told)}")


def _models(agent: PeerFacts, peer: PeerFacts) -> Iterator[Result]:
    if not agent.model or not peer.model:
        missing = " and ".join(each.node for each in (agent, peer) if not each.model)
        yield unknown("peer-model", f"no model folder on {missing}; --model-path names it")
        return
    parts = sorted({*agent.model, *peer.model})
    different = [part for part in parts if agent.model.get(part) != peer.model.get(part)]
    if different:
        yield failure("peer-model", f"the model folders differ in: {', '.join(different)}")
    else:
        yield good("peer-model", f"the model folders agree in: {', '.join(parts)}")


def _clock(agent: PeerFacts, peer: PeerFacts, measured: Measured) -> Result:
    # The middle of the round trip is a guess that can be wrong by half of it.
    certain_s = max(0.0, abs(measured.skew_s) - measured.round_trip_s / 2)
    ahead, behind = (agent, peer) if measured.skew_s >= 0 else (peer, agent)
    if certain_s > threshold("clock-skew"):
        seen = f"the clock of {ahead.node} is {abs(measured.skew_s):.2f} s ahead of that of {behind.node}"
        return warning("peer-clock", seen)
    return good("peer-clock", f"the clocks differ by {abs(measured.skew_s) * 1000:.0f} ms at most")


def _ports(agent: PeerFacts, peer: PeerFacts, measured: Measured) -> Iterator[Result]:
    for closed, source, place in (
        (measured.closed_at_agent, peer, agent),
        (measured.closed_at_peer, agent, peer),
    ):
        reasons: dict[str, list[str]] = {}
        for port, reason in sorted(closed.items()):
            reasons.setdefault(reason, []).append(str(port))
        for reason, ports in reasons.items():
            seen = f"{source.node} does not reach {place.node} on {', '.join(ports)}: {reason}"
            yield failure("peer-reach", seen)
    if not measured.closed_at_agent and not measured.closed_at_peer:
        if measured.num_tried:
            yield good(
                "peer-reach", f"{measured.num_tried} ports of the plan reached, both directions together"
            )
        else:
            yield unknown("peer-reach", "the plan names no ports")


def _bandwidth(agent: PeerFacts, peer: PeerFacts, measured: Measured) -> Iterator[Result]:
    least = threshold("peer-bandwidth")
    ways = ((peer, agent, measured.to_agent_mib_s), (agent, peer, measured.to_peer_mib_s))
    for source, place, speed in ways:
        seen = f"{source.node} to {place.node}: {speed:.0f} MiB/s"
        yield warning("peer-bandwidth", seen) if speed < least else good("peer-bandwidth", seen)
