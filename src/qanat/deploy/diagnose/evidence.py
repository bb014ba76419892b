"""What questions of performance are answered from: metrics, a benchmark, and settings of a log or a plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from qanat.config.flag_names import field_of
from qanat.deploy.diagnose.bench import BenchResult
from qanat.deploy.diagnose.diagnosis import LogDiagnosis
from qanat.deploy.diagnose.metrics import Metrics
from qanat.deploy.diagnose.settings import Settings
from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import must_parse, parse_image
from qanat.deploy.lint.files import Versions, view_document
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import decoding_role
from qanat.deploy.sizing.capture import (
    DEFAULT_MAX_CAPTURE,
    DEFAULT_MAX_NUM_SEQS,
    default_sizes,
    hybrid_block_size,
    rewrite_sizes,
)
from qanat.deploy.sources.documents import read_document

PLAIN_BLOCK_TOKENS = 128
"""Tokens of a block of models that are not hybrid, on Ascend."""


def threshold(name: str) -> float:
    """A number that figures are compared with."""
    return load_knowledge().threshold("diagnose_thresholds", name)


@dataclass
class Evidence:
    """Everything that is known of a running service.

    Attributes:
        metrics: of the server; None without.
        bench: result of a benchmark; None without.
        view: the settings, as the linter sees them; None if no log or plan was given.
        is_async: asynchronous scheduling, as the log says; None if it does not.
        settings_from: what the settings were read from, in words.
        told_sizes: capture sizes that the log states; empty if it does not.
    """

    metrics: Metrics | None = None
    bench: BenchResult | None = None
    view: LaunchView | None = None
    is_async: bool | None = None
    settings_from: str = ""
    told_sizes: tuple[int, ...] = ()

    def counter(self, name: str) -> float | None:
        """A counter; None without metrics or where the server does not have it."""
        return self.metrics.counter(name) if self.metrics else None

    def gauge(self, name: str) -> float | None:
        """A gauge; None without metrics or where the server does not have it."""
        return self.metrics.gauge(name) if self.metrics else None

    @property
    def model(self) -> ModelFacts | None:
        """The model; None if it is not known."""
        return self.view.model if self.view else None

    @property
    def model_name(self) -> str:
        """What the model is called in commands."""
        named = self.view.model_name if self.view else None
        return named or (self.bench.model if self.bench else "") or "MODEL"

    @property
    def num_draft_tokens(self) -> int | None:
        """Speculative tokens of a step; 0 without speculation, None if unknown."""
        drafts, tokens = self.counter("drafts"), self.counter("draft_tokens")
        if drafts and tokens:
            return round(tokens / drafts)
        if self.view is not None:
            return self.view.num_draft_tokens
        positions = self.bench.positions if self.bench else ()
        return len(positions) or None

    @property
    def max_num_seqs(self) -> int | None:
        """--max-num-seqs of one engine; None if unknown."""
        if self.view is None:
            return None
        return self.view.integer("--max-num-seqs") or DEFAULT_MAX_NUM_SEQS

    @property
    def block_tokens(self) -> int | None:
        """Tokens of a cache block: as the server says, else computed; None if unknown."""
        said = self.metrics.label("cache_config", "block_size") if self.metrics else None
        computed = None
        model, view = self.model, self.view
        if model is not None and view is not None:
            computed = PLAIN_BLOCK_TOKENS
            if model.is_hybrid:
                computed = hybrid_block_size(
                    model.num_kv_heads,
                    model.head_dim,
                    model.num_linear_value_heads,
                    model.linear_head_dim,
                    view.tp,
                )
        return int(said) if said and said.isdigit() else computed

    @property
    def is_prefix_caching(self) -> bool | None:
        """Whether prefix caching is on; None if unknown."""
        said = self.metrics.label("cache_config", "enable_prefix_caching") if self.metrics else None
        if said in ("True", "False"):
            return said == "True"
        if self.view is None:
            return None
        given = self.view.switch("--enable-prefix-caching")
        return given if given is not None else not (self.model is not None and self.model.is_hybrid)

    @cached_property
    def capture_sizes(self) -> tuple[int, ...] | None:
        """Sizes that are captured, after rewriting; empty without graphs, None if unknown."""
        view, seqs = self.view, self.max_num_seqs
        if view is None or seqs is None:
            return None
        if view.is_eager:
            return ()
        step = 1 + view.num_draft_tokens
        stated = self.told_sizes or view.capture_sizes or default_sizes(min(seqs * step, DEFAULT_MAX_CAPTURE))
        rewriting = rewrite_sizes(
            stated,
            view.max_num_batched_tokens,
            view.tp if view.has_flashcomm1 else 1,
            step if view.has_full_decode_graphs else 1,
        )
        return rewriting.sizes


def view_of(settings: Settings, version: str | None) -> LaunchView | None:
    """Settings as the linter sees a command; None if there are none."""
    if settings.arguments_at is None:
        return None
    knowledge = load_knowledge()
    text, _ = settings.command()
    document = read_document("settings.sh", text)
    tag = parse_image(version) if version else None
    newest = must_parse(knowledge.newest_stable.name)
    chip = knowledge.chip_of(tag.suffixes) if tag else None
    versions = Versions(document, tag.version if tag else None, newest, chip=chip)
    launches = view_document(document, knowledge, versions).launches
    return launches[0] if launches else None


def settings_of_plan(plan: Plan, role_name: str | None) -> Settings:
    """The settings of a plan's role, that which decodes if none is named.

    Raises:
        KeyError: the plan has no such role.
    """
    role = plan.role(role_name) if role_name else decoding_role(plan)
    arguments = {field_of(name): value for name, value in role.flags.items()}
    arguments["model"] = plan.model_source
    settings = Settings(arguments=arguments, arguments_at=("plan", 0))
    settings.variables = {name: (value, "plan", 0) for name, value in role.env.items() if value}
    return settings


def evidence_of_log(diagnosis: LogDiagnosis) -> Evidence:
    """Evidence with the settings of a log."""
    said = diagnosis.facts.value("async_scheduling")
    sizes = diagnosis.facts.value("capture_sizes") or ""
    return Evidence(
        view=view_of(diagnosis.settings, diagnosis.image or diagnosis.version),
        is_async=None if said is None else said == "enabled",
        settings_from="the log",
        told_sizes=tuple(int(one) for one in sizes.replace(" ", "").split(",") if one.isdigit()),
    )
