"""Speculative decoding: which kind, with how many tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.subject import Subject
from qanat.deploy.plan.wish import Wish

MTP_METHOD = "qwen3_5_mtp"
MAX_TOKENS = 15


@dataclass(frozen=True)
class Speculation:
    """What drafts, and how much.

    Attributes:
        drafter: None without speculation.
        num_tokens: drafted per step; 0 without speculation.
        draft_model: repository or path of the draft model, for eagle3.
    """

    drafter: Literal["mtp", "eagle3"] | None = None
    num_tokens: int = 0
    draft_model: str | None = None

    def flag(self) -> dict[str, Any] | None:
        """The value of --speculative-config; None without speculation."""
        if self.drafter is None:
            return None
        if self.drafter == "mtp":
            return {"method": MTP_METHOD, "num_speculative_tokens": self.num_tokens}
        return {
            "method": "eagle3",
            "model": self.draft_model,
            "num_speculative_tokens": self.num_tokens,
            "draft_tensor_parallel_size": 1,
        }


def choose_speculation(wish: Wish, subject: Subject, knowledge: Knowledge, advice: Advice) -> Speculation:
    """The speculation of a deployment; all its engines have the same.

    Raises:
        ImpossibleWish: what is asked for contradicts itself, the weights or the release.
    """
    _check_fields(wish)
    practice = advice.find("speculation")
    auto = str(practice.value) if practice is not None else "off"
    kind: str = wish.speculation
    if kind == "auto":
        kind = (
            "eagle3" if wish.draft_model else "mtp" if wish.num_speculative_tokens and auto == "off" else auto
        )
        if kind == "mtp" and not subject.model.is_hybrid:
            kind = "eagle3"
    drafts = _draft_models(wish, subject, knowledge)
    reason = _obstacle(wish, kind, subject, drafts, advice)
    if reason is not None:
        if wish.speculation == "auto" and wish.draft_model is None and wish.num_speculative_tokens is None:
            advice.reckon("--speculative-config", "off", reason)
            return Speculation()
        candidates = [
            msgspec.structs.replace(wish, speculation="auto", num_speculative_tokens=None, draft_model=None),
            msgspec.structs.replace(wish, image=None),
        ]
        why = f"--speculation {kind} is not possible: {reason}."
        raise ImpossibleWish(why, param="--speculation", candidates=candidates)
    if wish.speculation == "auto" and kind == auto:
        advice.take("speculation")
    else:
        advice.state("speculation", kind)
    if kind == "off":
        return Speculation()
    num_tokens = int(advice.take("num_speculative_tokens", wish.num_speculative_tokens))
    advice.numbers["k"] = num_tokens
    if kind == "mtp":
        return Speculation("mtp", num_tokens)
    return Speculation("eagle3", num_tokens, drafts[0])


def _draft_models(wish: Wish, subject: Subject, knowledge: Knowledge) -> list[str]:
    if wish.draft_model:
        return [wish.draft_model]
    table = knowledge.tables["draft_models"].entries.values()
    return [one.name for one in table if one.model == subject.model.name]


def _check_fields(wish: Wish) -> None:
    """Raises ImpossibleWish where fields of speculation contradict each other."""
    why = param = None
    if wish.num_speculative_tokens is not None and not 1 <= wish.num_speculative_tokens <= MAX_TOKENS:
        param = "--num-speculative-tokens"
        why = f"{param} {wish.num_speculative_tokens}: 1 to {MAX_TOKENS} are possible; --speculation off is none."
    elif wish.speculation == "off" and wish.num_speculative_tokens is not None:
        param = "--num-speculative-tokens"
        why = f"{param} {wish.num_speculative_tokens} contradicts --speculation off."
    elif wish.draft_model is not None and wish.speculation not in ("auto", "eagle3"):
        param = "--draft-model"
        why = f"{param} is for --speculation eagle3, and --speculation {wish.speculation} is asked for."
    if why is not None:
        cleared = msgspec.structs.replace(wish, num_speculative_tokens=None, draft_model=None)
        free = msgspec.structs.replace(cleared, speculation="auto")
        raise ImpossibleWish(why, param=param, candidates=[cleared, free])


def _obstacle(wish: Wish, kind: str, subject: Subject, drafts: list[str], advice: Advice) -> str | None:
    """Why a kind of speculation cannot be; None if it can."""
    model = subject.model
    if kind == "mtp":
        if not model.is_hybrid:
            return f"{model.name} has no multi token prediction; eagle3 takes a draft model"
        says_without = (
            wish.weights is not None and not subject.is_published and not wish.weights.endswith("-mtp")
        )
        if not subject.weights.has_drafter or says_without:
            return f"{subject.weights.name} has no drafter; weights with -mtp at the end of their name do"
    if kind == "eagle3":
        if model.is_hybrid:
            return f"{model.name} drafts with its own MTP, and no eagle3 draft model is known for it"
        if not drafts:
            return f"no draft model is known for {model.name}; --draft-model names one"
    practice = advice.find("drafting") if kind != "off" else None
    return practice.reason if practice is not None and practice.value is False else None
