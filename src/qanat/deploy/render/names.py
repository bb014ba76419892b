"""Names that scripts, manifests and tools agree on: of the deployment, its containers, labels and paths."""

from __future__ import annotations

import hashlib
import json
import re

from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import service_port

SERVER_READY_PATH = "/health"
PROXY_READY_PATH = "/healthcheck"
LABEL_DEPLOYMENT = "io.qanat.deployment"
LABEL_NODE = "io.qanat.node"
LABEL_FOLDER = "io.qanat.folder"
"""A label that holds the folder a container was started from."""
LABEL_SETTINGS = "io.qanat.settings"
"""A label that holds a digest of everything a container was started with."""
MOUNTED_AT = "/deployment"
"""Where containers see the folder, read only."""
LOGS_AT = "/var/log/qanat"
"""Where containers see `LOG_DIR` of env.sh."""
PROXY_NAME = "proxy"


_DIGEST_LENGTH = 6


def readable_name(plan: Plan) -> str:
    """What is left of the served name in small letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^a-z0-9_.-]+", "-", plan.served_model_name.lower()).strip("-._") or "qanat"


def identity(plan: Plan) -> str:
    """Some characters that tell deployments apart whose names look the same.

    They come of what clients see: served name, model and port. So a plan that is rendered again with other limits or
    switches keeps them, and its scripts still know what runs.
    """
    parts = [plan.served_model_name, plan.model, service_port(plan)]
    return hashlib.sha256(json.dumps(parts).encode("utf-8")).hexdigest()[:_DIGEST_LENGTH]


def deployment_name(plan: Plan) -> str:
    """The deployment's name: fit for a container, a label and a folder."""
    return f"{readable_name(plan)}-{identity(plan)}"


def container_name(plan: Plan, node_name: str) -> str:
    """The name of a node's container, or of the proxy's where `node_name` is `PROXY_NAME`."""
    return f"{deployment_name(plan)}-{node_name}"
