"""The checks; importing this package registers them in the order in which they run."""

from qanat.deploy.verify.checks import (  # noqa: I001
    readiness,
    generation,
    tools,
    streaming,
    prompts,
    sampling,
    errors,
    load,
    quality,
)

__all__ = [
    "errors",
    "generation",
    "load",
    "prompts",
    "quality",
    "readiness",
    "sampling",
    "streaming",
    "tools",
]
