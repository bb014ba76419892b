"""`qanat bench`: measures kernels and models, beside what the machine can do at most."""

from __future__ import annotations

from qanat.cli.group import CommandGroup

GROUP = CommandGroup(
    name="bench",
    about="Measures, and shows how near a result is to the limit of the machine, measured in the same run.",
    actions={
        "serve": "measure a running server over its API",
        "compare": "compare two servers, or two settings of one",
        "sweep": "find the highest rate that a server takes within bounds of latency",
        "report": "make an HTML report of saved results",
        "kernels": "time each op at the shapes of a model, as a share of the machine's limit",
        "latency": "time one batch of equal requests, repeated",
        "throughput": "time many requests that are all there at once",
    },
    package="qanat.cli.bench_actions",
    examples=(
        "qanat bench serve --base-url http://127.0.0.1:8000 --request-rate 10 --num-prompts 200",
        "qanat bench kernels --model Qwen3.5-0.8B --filter linear",
        "qanat bench latency --model Qwen3.5-0.8B --input-len 32 --output-len 64 --batch-size 1",
        "qanat bench throughput ./Qwen3.5-0.8B --dataset-name random --input-len 512 --output-len 64 "
        "--num-prompts 64",
    ),
)

main = GROUP.main
fill_parser = GROUP.fill_parser
