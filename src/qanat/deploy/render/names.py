"""Names that scripts, manifests and tools agree on: of the deployment, its containers, labels and paths."""

from __future__ import annotations

import re

from qanat.deploy.plan.model import Plan

SERVER_READY_PATH = "/health"
PROXY_READY_PATH = "/healthcheck"
LABEL_DEPLOYMENT = "io.qanat.deployment"
LABEL_NODE = "io.qanat.node"
LABEL_SETTINGS = "io.qanat.settings"
"""A label that holds a digest of everything a container was started with."""
MOUNTED_AT = "/deployment"
"""Where containers see the folder, read only."""
LOGS_AT = "/var/log/qanat"
"""Where containers see `LOG_DIR` of env.sh."""
PROXY_NAME = "proxy"


def deployment_name(plan: Plan) -> str:
    """The deployment's name: fit for a container, a label and a folder."""
    name = re.sub(r"[^a-z0-9_.-]+", "-", plan.served_model_name.lower()).strip("-._")
    return name or "qanat"


def container_name(plan: Plan, node_name: str) -> str:
    """The name of a node's container, or of the proxy's where `node_name` is `PROXY_NAME`."""
    return f"{deployment_name(plan)}-{node_name}"
