"""What the endpoints share: the engine, its tokenizer and template, and the rules about names and ids."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import InvalidRequestError, NotFoundError
from qanat.core.timeouts import Timeouts
from qanat.engine.async_engine import AsyncEngine
from qanat.server.caller import Caller
from qanat.server.deadlines import TimeoutParts, timeouts_of
from qanat.server.desk import Desk, LocalDesk
from qanat.server.encoding import PromptEncoder
from qanat.server.recent import RecentRequests
from qanat.server.renderer import ChatRenderer, load_template
from qanat.server.requests import GenerationRequest
from qanat.server.running import RunningRequests
from qanat.server.siblings import Alone, Company, Siblings
from qanat.server.tags import ThinkTags
from qanat.server.tools.parser import CallFormat, choose_format
from qanat.server.turnstile import Turnstile

_USABLE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True)
class Service:
    """Everything that an endpoint needs.

    Attributes:
        engine: generates.
        encoder: tokenises.
        renderer: applies the chat template.
        tags: how thinking is marked; None if it is not told from the answer.
        sampling_defaults: values of sampling fields for requests that do not name them.
        max_body_bytes: larger request bodies are refused.
        siblings: all processes that serve the address.
        running: generations by request id.
        recent: what requests took lately.
        desk: holds callers to their bounds, and counts.
        default_timeout_s: for requests that do not say how long they may take; None for no bound.
        turnstile: spreads the beginnings of requests over turns of the event loop.
        call_format: how the model writes tool calls; None leaves them in the text.
        reads_auto_calls: calls are read where the model was free to call; where it had to, they always are.
    """

    engine: AsyncEngine
    encoder: PromptEncoder
    renderer: ChatRenderer
    tags: ThinkTags | None
    sampling_defaults: Mapping[str, Any]
    max_body_bytes: int
    siblings: Siblings
    running: RunningRequests = field(default_factory=RunningRequests)
    recent: RecentRequests = field(default_factory=RecentRequests)
    call_format: CallFormat | None = None
    reads_auto_calls: bool = True
    desk: Desk = field(default_factory=LocalDesk)
    turnstile: Turnstile = field(default_factory=Turnstile)
    default_timeout_s: float | None = None

    @classmethod
    def build(
        cls,
        engine: AsyncEngine,
        options: ServerOptions,
        sampling_defaults: Mapping[str, Any],
        company: Company | None = None,
    ) -> Service:
        """Compiles the template and looks up the tags.

        Args:
            engine: a started engine.
            options: keys, template, parser.
            sampling_defaults: values of sampling fields for requests that do not name them.
            company: other processes that serve the address; None if this is the only one.

        Raises:
            ConfigError: the chat template cannot be used.
        """
        tokenizer = engine.tokenizer
        encoder = PromptEncoder(tokenizer, engine.config.scheduler.max_model_len)
        template = load_template(
            options.chat_template,
            tokenizer,
            engine.config.model.model_family,
            engine.config.model.hidden_size,
        )
        renderer = ChatRenderer(template, tokenizer, encoder, options.default_chat_template_kwargs)
        tags = None if options.reasoning_parser == "none" else ThinkTags.of(tokenizer)
        family = engine.config.model.model_family
        call_format = choose_format(options.tool_call_parser, family, tokenizer.chat_template)
        running, recent = RunningRequests(), RecentRequests()
        alone = Alone(engine, running, recent)
        return cls(
            engine,
            encoder,
            renderer,
            tags,
            sampling_defaults,
            options.max_request_bytes,
            alone if company is None else company.siblings(alone),
            running,
            recent,
            call_format=call_format,
            reads_auto_calls=options.enable_auto_tool_choice,
            desk=LocalDesk() if company is None else company.desk,
            default_timeout_s=options.request_timeout_s,
        )

    @property
    def model_name(self) -> str:
        """The name that answers carry."""
        return self.engine.config.served_model_names[0]

    def check_request(self, request: GenerationRequest, caller: Caller) -> None:
        """Checks the fields that concern the server as a whole.

        Raises:
            NotFoundError: the model is not served here, or not to this caller.
            InvalidRequestError: a priority without the policy for it, or one that the caller may not ask for.
        """
        self.check_model(request.model, caller)
        if request.priority < 0 and caller.name and not caller.is_admin:
            raise InvalidRequestError(
                "priority must not be below 0: a request may only go behind others of its key.",
                param="priority",
            )
        if request.priority != 0 and self.engine.config.scheduler.policy != "priority":
            raise InvalidRequestError(
                "priority needs a server started with --scheduling-policy priority.", param="priority"
            )

    def timeouts(self, timeout: float | TimeoutParts | None) -> Timeouts:
        """What a request with this field is held to."""
        return timeouts_of(timeout, self.default_timeout_s)

    def models_of(self, caller: Caller) -> list[str]:
        """The served names that this caller may use, at least one."""
        return [name for name in self.engine.config.served_model_names if caller.may_use(name)]

    def check_model(self, name: str | None, caller: Caller) -> None:
        """Checks the name that a request gives; none stands for the first one that the caller may use.

        Raises:
            NotFoundError: the model is not served here, or not to this caller.
        """
        names = self.models_of(caller)
        if name is not None and name not in names:
            raise NotFoundError(
                f"The model {name!r} does not exist here; served: {', '.join(names)}.", param="model"
            )


def usable_id(wanted: str | None) -> str:
    """The client's id if it is plain and short, else a new one. It may appear in headers and logs."""
    return wanted if wanted and _USABLE_ID.fullmatch(wanted) else secrets.token_hex(16)


def internal_id(reply_id: str) -> str:
    """An id for the engine that no other request has, whatever id the client chose."""
    return f"{reply_id}-{secrets.token_hex(4)}"


def reply_id_of(engine_id: str) -> str:
    """The answer's id from which `internal_id` made this one."""
    return engine_id.rpartition("-")[0]
