"""/v1/plan says what holds, why, and where the memory is."""

from __future__ import annotations

from pathlib import Path

from qanat.core.decision import Decision
from tests.support.app_server import AppServer


def test_the_plan_is_the_engines(server: AppServer) -> None:
    engine = server.scripted.engine
    decision = Decision("--max-num-seqs", 64, 32, "no more fit the memory")
    server.in_loop(lambda: engine.decisions.append(decision))
    server.in_loop(lambda: engine.op_table.append("rms_norm: torch"))
    plan = server.http.get("/v1/plan").json()
    assert plan["decisions"] == [
        {"field": "--max-num-seqs", "wanted": 64, "got": 32, "why": "no more fit the memory"}
    ]
    assert plan["ops"] == ["rms_norm: torch"]
    assert plan["settings"]["scheduler"]["max_model_len"] == 2048
    assert plan["settings"]["served_model_names"] == ["scripted", "scripted-alias"]
    assert plan["settings"]["model"]["vocab_size"] == 8192
    memory = plan["memory"]
    parts = ("weight_bytes", "workspace_bytes", "blocks_bytes", "states_bytes", "checkpoints_bytes")
    assert memory["total_bytes"] == sum(memory[name] for name in parts) == engine.memory_plan.total_bytes
    assert memory["blocks_bytes"] == memory["num_blocks"] * memory["block_bytes"] > 0
    assert plan["capacity"][0] == {"num_tokens": 1024, "num_requests": 32}
    assert plan["version"] == server.http.get("/version").json()["version"]


def test_a_value_that_json_does_not_know_is_written_as_text(server: AppServer) -> None:
    decision = Decision("--download-dir", Path("models"), None, "odd")
    server.in_loop(lambda: server.scripted.engine.decisions.append(decision))
    assert server.http.get("/v1/plan").json()["decisions"][-1]["wanted"] == "models"
