"""Is it there, and what does it call itself?"""

from __future__ import annotations

import asyncio
import time

from qanat.deploy.verify.check import Context, Skip, check
from qanat.deploy.verify.service import Fault, read_object, refusal, shown

POLL_S = 0.5
PROBE_TIMEOUT_S = 5.0
PROXY_HEALTH = "/healthcheck"
"""The example proxies of vllm-ascend have this and no /health; it does not ask the engines."""
HOPELESS = ("tls_failed", "no_http", "key_refused", "redirected")


@check("ready", "answers /health", needs=())
async def ready(context: Context) -> str:
    """Waits until /health answers 200."""
    started = time.monotonic()
    while True:
        try:
            path = await _healthy_path(context)
            break
        except Fault as fault:
            waited_s = time.monotonic() - started
            if fault.symptom in HOPELESS or waited_s >= context.settings.wait_s:
                raise fault if fault.symptom != "busy" else Fault("not_ready", fault.seen) from None
        await asyncio.sleep(POLL_S)
    context.counters = await context.metrics()
    if path == PROXY_HEALTH:
        raise Fault("blind_health", f"{PROXY_HEALTH} answers 200, and there is no /health")
    return f"/health after {time.monotonic() - started:.1f} s"


async def _healthy_path(context: Context) -> str:
    """The path that says that the service is there."""
    for path in ("/health", PROXY_HEALTH):
        answer = await context.service.get(path, timeout_s=PROBE_TIMEOUT_S)
        if answer.status == 200:
            return path
        if answer.status not in (404, 405):
            raise refusal(answer.status, answer.body)
    raise Fault("no_health", f"neither /health nor {PROXY_HEALTH} exists")


@check("model", "names its model", needs=("ready",))
async def model(context: Context) -> str:
    """Finds the name for requests and the window."""
    context.model = context.settings.model or ""
    context.max_model_len = context.settings.max_model_len
    answer = await context.service.get("/v1/models")
    if answer.status in (404, 405):
        if not context.model:
            raise Fault("no_model_list", f"/v1/models answers {answer.status}")
        raise Fault("no_model_list_but_named", f"/v1/models answers {answer.status}")
    names = _names(read_object(answer))
    windows = {name: window for name, window in names.items() if window}
    wanted = context.model
    if wanted and wanted not in names:
        raise Fault("other_model", f"it serves {', '.join(names)}, not {wanted}")
    context.model = wanted or next(iter(names))
    context.max_model_len = context.max_model_len or windows.get(context.model)
    expected, said = context.settings.max_model_len, windows.get(context.model)
    if expected and said and expected != said:
        raise Fault("other_window", f"max_model_len is {said}, expected was {expected}")
    window = f", window {context.max_model_len}" if context.max_model_len else ""
    others = f", also {', '.join(name for name in names if name != context.model)}" if len(names) > 1 else ""
    return f"{context.model}{window}{others}"


def _names(value: dict[str, object]) -> dict[str, int | None]:
    data = value.get("data")
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise Fault("misshapen_answer", "/v1/models has no list of models in data")
    names = {one["id"]: one.get("max_model_len") for one in data if isinstance(one.get("id"), str)}
    if not names:
        raise Fault("other_model", "it serves no model at all")
    return {name: window if isinstance(window, int) else None for name, window in names.items()}


@check("key", "refuses requests without the key", needs=("ready",))
async def key(context: Context) -> str:
    """Asks without the key."""
    if not context.service.exchange.has_key:
        raise Skip("no --api-key-env")
    answer = await context.service.get("/v1/models", with_key=False)
    if answer.status not in (401, 403):
        raise Fault("open_without_key", f"/v1/models without a key answers {answer.status}")
    return shown(f"status {answer.status}")
