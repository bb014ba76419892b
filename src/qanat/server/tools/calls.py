"""The calls of one choice: what is not yet certain to be one, what was said about each, how they ended."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from qanat.core.events import PositionLogprobs
from qanat.server.events import ToolCallDelta
from qanat.server.tools.parser import CallParser, ParserFactory
from qanat.server.tools.state import CallState
from qanat.server.tools.tags import Tag, Unit

_ID_BYTES = 12


@dataclass(frozen=True)
class CallNews:
    """What one unit within a call led to.

    Attributes:
        deltas: to be told to the client.
        silent: units that added nothing to the visible text.
        again: units to be handled once more, outside the call.
        is_begun: the call became certain here.
        is_too_many: it did, but no further call is wanted.
    """

    deltas: list[ToolCallDelta] = field(default_factory=list)
    silent: list[Unit] = field(default_factory=list)
    again: list[Unit] = field(default_factory=list)
    is_begun: bool = False
    is_too_many: bool = False


class CallReader:
    """Reads the calls of one choice, unit by unit.

    Args:
        index: choice.
        make_parser: one for each call.
        max_calls: further ones are not let through; None is no bound.
        openings: first lines of calls, for the `TagReader`.
    """

    def __init__(
        self, index: int, make_parser: ParserFactory, max_calls: int | None, openings: Sequence[str] = ()
    ) -> None:
        self.openings = openings
        self._index = index
        self._make_parser = make_parser
        self._max_calls = max_calls
        self._parser: CallParser | None = None
        self._pending: list[Unit] = []
        self._num_calls = 0
        self._num_done = 0
        self._is_inside_tags = False

    @property
    def is_reading(self) -> bool:
        """True within a call, or what may be one."""
        return self._parser is not None

    @property
    def is_open(self) -> bool:
        """True within a call that is certain to be one."""
        return self._parser is not None and self._parser.state is CallState.OPEN

    @property
    def is_inside_tags(self) -> bool:
        """True from a call's opening tag to its closing one."""
        return self._is_inside_tags

    @property
    def is_complete(self) -> bool:
        """True if there were calls and each came to its end."""
        return 0 < self._num_calls == self._num_done

    def begins_at(self, unit: Unit) -> bool:
        """Whether a call may begin with this unit; if so, it is taken."""
        if unit.tag not in (Tag.OPEN, Tag.BARE):
            return False
        self._parser, self._pending, self._is_inside_tags = self._make_parser(), [unit], True
        if unit.tag is Tag.BARE:
            self._parser.push(unit.text)
        return True

    def closes_at(self, unit: Unit) -> bool:
        """Whether this is the closing tag of a call that has ended; it is then no text."""
        if unit.tag is Tag.CLOSE and self.is_inside_tags:
            self._is_inside_tags = False
            return True
        return False

    def push(self, unit: Unit) -> CallNews:
        """Takes a unit within a call."""
        assert self._parser is not None
        parser = self._parser
        was_opening = parser.state is CallState.OPENING
        is_first_line = unit.tag is Tag.BARE and was_opening
        if unit.tag is None or is_first_line or parser.is_in_value:
            parser.push(unit.text)
            again: list[Unit] = []
            if parser.rest:
                again = [Unit(-1, parser.rest, parser.rest.encode(), unit.position, unit.number)]
        else:
            parser.close()
            again = [unit]  # closes the call's tags, or opens the next ones
        if parser.state is CallState.OPENING:
            self._pending.append(unit)
            return CallNews()
        if parser.state is CallState.MALFORMED:
            return CallNews(again=self.give_up(unit))
        silent = [*self._pending, *([] if again else [unit])]
        self._pending = []
        if was_opening and self._num_calls == self._max_calls:
            return CallNews(silent=silent, again=again, is_too_many=True)
        deltas = self._deltas(parser, is_new=was_opening)
        if parser.state is not CallState.OPEN:
            self._parser = None
            self._num_done += parser.state is CallState.DONE
        return CallNews(deltas, silent, again, is_begun=was_opening)

    def finish(self, position: PositionLogprobs | None, num_tokens: int, *, is_turn_over: bool) -> CallNews:
        """The output ended, after so many tokens, within a call that is certain to be one; see `CallParser`.

        Text that follows the call became certain with the last token, whose position this is.
        """
        assert self._parser is not None
        parser = self._parser
        parser.finish(is_turn_over=is_turn_over)
        self._parser = None
        self._num_done += parser.state is CallState.DONE
        rest = Unit(-1, parser.rest, parser.rest.encode(), position, num_tokens, is_counted=False)
        return CallNews(self._deltas(parser, is_new=False), again=[rest] if parser.rest else [])

    def give_up(self, unit: Unit | None = None) -> list[Unit]:
        """What may have become a call did not: its units, the opening tag now text."""
        units = [*self._pending, *([unit] if unit is not None else [])]
        self._parser, self._pending, self._is_inside_tags = None, [], False
        return [*units[0].as_text(), *units[1:]] if units else []

    def _deltas(self, parser: CallParser, *, is_new: bool) -> list[ToolCallDelta]:
        deltas = []
        if is_new:
            call_id = f"call_{secrets.token_hex(_ID_BYTES)}"
            deltas.append(ToolCallDelta(self._index, self._num_calls, "", call_id, parser.name))
            self._num_calls += 1
        arguments = parser.take_arguments()
        if arguments:
            deltas.append(ToolCallDelta(self._index, self._num_calls - 1, arguments))
        return deltas
