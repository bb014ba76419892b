"""`qanat deploy`: plans, writes, checks and diagnoses vLLM-Ascend services."""

from __future__ import annotations

from qanat.cli.group import CommandGroup

GROUP = CommandGroup(
    name="deploy",
    about="Helps to run vLLM-Ascend services. Nothing here needs torch or a card.",
    actions={
        "plan": "plan a service for the machines there are, with a reason for every setting",
        "render": "write scripts, manifests and a README that run a plan",
        "lint": "check scripts, manifests and guides before they run",
        "preflight": "check a host before a deployment is started on it",
        "up": "run a rendered folder on this host",
        "diagnose": "say from logs and metrics why a service fails or is slow",
        "verify": "ask a running service until it is known to work",
    },
    package="qanat.cli.deploy_actions",
    examples=(
        "qanat deploy plan --model Qwen3.5-35B-A3B --hardware atlas-800-a3 --concurrency 64 --output plan.yaml",
        "qanat deploy render plan.yaml deployment/",
        "qanat deploy preflight deployment/ --node server-0",
        "qanat deploy up deployment/",
        "qanat deploy verify http://127.0.0.1:8000",
        "qanat deploy diagnose serve.log",
        "qanat deploy lint run_p.sh run_d.sh proxy.sh --image v0.18.0rc1-a3",
    ),
)

main = GROUP.main
fill_parser = GROUP.fill_parser
