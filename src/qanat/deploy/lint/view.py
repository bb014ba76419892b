"""What rules look at: a launch with its flags under known names and its values read, a document, a set of files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.knowledge.kinds.settings import Connector
from qanat.deploy.knowledge.versions import Version, must_parse, parse_image
from qanat.deploy.lint.names import FlagNames, Named
from qanat.deploy.lint.reading import as_integer, is_truthy, read_integer
from qanat.deploy.sources.json_text import JsonNode
from qanat.deploy.sources.launch import Assignment, Document, Flag, Launch
from qanat.deploy.sources.values import Place, Value

COMPILATION: Final = "--compilation-config"
ADDITIONAL: Final = "--additional-config"
SPECULATIVE: Final = "--speculative-config"
TRANSFER: Final = "--kv-transfer-config"
FULL_DECODE_MODES: Final = ("FULL_DECODE_ONLY", "FULL", "FULL_AND_PIECEWISE")
FLASHCOMM1_KEY_SINCE: Final = must_parse("0.20.2rc1")
FLASHCOMM_ALIAS_UNTIL: Final = must_parse("0.19.1rc1")


def chip_by_suffix(knowledge: Knowledge, suffixes: Collection[str]) -> Chip | None:
    """The chip that an image is built for, by the suffixes of its tag; None if they name none."""
    return next(
        (chip for chip in knowledge.chips if chip.image_suffix and chip.image_suffix in suffixes), None
    )


@dataclass(frozen=True)
class Setting:
    """A switch that is on or off, and the place that decides it."""

    is_on: bool
    place: Place
    number: int = 1


class LaunchView:
    """A launch with its flags under known names, for one version, and for one chip if the user named it."""

    def __init__(
        self,
        launch: Launch,
        document: Document,
        knowledge: Knowledge,
        version: Version,
        named_chip: Chip | None = None,
    ) -> None:
        self.launch = launch
        self.document = document
        self.knowledge = knowledge
        self.version = version
        self.named_chip = named_chip
        self.named: list[Named] = []
        self._last: dict[str, Named] = {}
        self._json: dict[str, JsonNode | None] = {}
        self.unresolved: list[Flag] = []
        self.cache: dict[str, object] = {}
        for flag in launch.flags:
            named = self.names.find(flag) if self.names else None
            if named is None:
                self.unresolved.append(flag)
            else:
                self.named.append(named)
                if not named.keys:
                    self._last[named.name] = named

    @cached_property
    def names(self) -> FlagNames | None:
        """The flags its program knows; None for programs whose flags are not known."""
        launch = self.launch
        serve = (self.knowledge.serve_flags, "")
        if launch.kind in ("serve", "fragment"):
            return FlagNames([serve], self.version)
        if launch.kind == "bench" and launch.program.startswith("vllm bench "):
            command = launch.program.split()[-1]
            tables = [(self.knowledge.bench_flags, f"{command} ")]
            return FlagNames(tables if command == "serve" else [serve, *tables], self.version)
        return None

    def get(self, name: str) -> Named | None:
        """The last use of a flag by its known name, which is the one that counts."""
        return self._last.get(name)

    def value(self, name: str) -> Value | None:
        """The word behind a flag; None if the flag or the word is absent."""
        named = self.get(name)
        return named.flag.value if named else None

    def text(self, name: str) -> str | None:
        """The word behind a flag if nothing in it is unknown."""
        value = self.value(name)
        return value.text if value is not None and value.is_known else None

    def integer(self, name: str) -> int | None:
        """The whole number behind a flag ("16384", "16k", "16K"); None if absent, unknown or no number."""
        return read_integer(self.text(name))

    def number(self, name: str) -> float | None:
        """The number behind a flag; None if absent, unknown or no number."""
        try:
            return float(self.text(name) or "")
        except ValueError:
            return None

    def switch(self, name: str) -> bool | None:
        """Whether a switch is on; None if it is not given."""
        named = self.get(name)
        if named is None:
            return None
        value = named.flag.value.text.lower() if named.flag.has_equals and named.flag.value else "true"
        return (value != "false") is not named.is_negated

    def place(self, *names: str) -> Place:
        """Where the first of these flags that is given stands, with its value; else the command."""
        for name in names:
            named = self.get(name)
            if named is not None:
                return named.flag.value.place if named.flag.value else named.flag.place
        return self.launch.place

    def json(self, name: str) -> JsonNode | None:
        """The JSON of a flag; None if absent or no JSON."""
        if name not in self._json:
            written = [named.flag.name.split(".")[0] for named in self.named if named.name == name]
            names = dict.fromkeys(reversed(written))
            self._json[name] = self.launch.json(*names) if names else None
        return self._json[name]

    def key(self, flag: str, *path: str) -> JsonNode | None:
        """A member of a flag's JSON."""
        node = self.json(flag)
        return node.get(*path) if node else None

    def is_key_on(self, *path: str) -> Setting | None:
        """A switch in --additional-config; None if it is not there."""
        node = self.key(ADDITIONAL, *path)
        return Setting(is_truthy(node.value), node.key_place or node.place) if node else None

    def variable(self, name: str) -> Assignment | None:
        """The assignment in force."""
        return self.launch.env.get(name)

    def is_variable_on(self, name: str) -> bool:
        """Whether a switch of the environment is on."""
        assignment = self.variable(name)
        return assignment is not None and is_truthy(assignment.value.text)

    @property
    def model_name(self) -> str | None:
        """Path or repository of the model; None if it is not given."""
        by_flag = self.value("--model")
        if by_flag is not None:
            return by_flag.text
        if self.launch.words and self.launch.kind == "serve":
            return self.launch.words[0].text
        return next((value.text for value in self._stray_words() if "/" in value.text), None)

    def _stray_words(self) -> Iterator[Value]:
        for named in self.named:
            if named.entry.kind == "bool" and not named.flag.has_equals:
                yield from named.flag.values

    @cached_property
    def model(self) -> ModelFacts | None:
        """What is known of the model; None if it is not one of the known ones."""
        names = (self.model_name or "", self.text("--served-model-name") or "")
        for name in names:
            for model in self.knowledge.models:
                if re.search(rf"(?:^|[/_\W]){model.pattern}(?![\w.])|{model.pattern}(?=[-_])", name.lower()):
                    return model
        return None

    @cached_property
    def chip(self) -> Chip | None:
        """The accelerator it is meant for: by its container, devices or the text before it; None if unclear."""
        if self.named_chip is not None:
            return self.named_chip
        visible = self.visible_npus
        chips = {chip.name: chip for chip in self.knowledge.chips}
        named = self._chip_in_text()
        is_spread = self.text("--distributed-executor-backend") == "ray"
        if (visible is not None and visible > 8) or (self.num_local_ranks > 8 and not is_spread):
            return named if named is not None and named.num_npus_per_node > 8 else chips["A3"]
        container = self.launch.container
        image = parse_image(container.image.text) if container and container.image else None
        built_for = chip_by_suffix(self.knowledge, image.suffixes) if image is not None else None
        if built_for is not None:
            return built_for
        return named

    def _chip_in_text(self) -> Chip | None:
        """The chip that the text before the launch names last."""
        before = self.document.text[: self.launch.place.start]
        best: tuple[int, Chip] | None = None
        for chip in self.knowledge.chips:
            for spelling in chip.spellings:
                for match in re.finditer(spelling, before, re.ASCII):
                    if best is None or match.start() > best[0]:
                        best = (match.start(), chip)
        return best[1] if best else None

    @property
    def visible_npus(self) -> int | None:
        """How many NPUs ASCEND_RT_VISIBLE_DEVICES names; None if it is not set or unclear."""
        assignment = self.variable("ASCEND_RT_VISIBLE_DEVICES")
        if assignment is None or not re.fullmatch(r"\d+([,-]\d+)*", assignment.value.text):
            return None
        num = 0
        for part in assignment.value.text.split(","):
            ends = [int(end) for end in part.split("-")]
            num += ends[-1] - ends[0] + 1
        return num

    @property
    def tp(self) -> int:
        """Tensor parallel size."""
        return self.integer("--tensor-parallel-size") or 1

    @property
    def pp(self) -> int:
        """Pipeline parallel size."""
        return self.integer("--pipeline-parallel-size") or 1

    @property
    def dp(self) -> int:
        """Data parallel size over all nodes."""
        return self.integer("--data-parallel-size") or 1

    @property
    def dp_local(self) -> int:
        """Data parallel size on this node; 1 if the group is spread by rank."""
        local = self.integer("--data-parallel-size-local")
        if local is not None:
            return local
        spread = self.get("--data-parallel-rank") or self.get("--headless")
        return 1 if spread else self.dp

    @property
    def num_local_ranks(self) -> int:
        """NPUs this server needs on its node; TP and PP over several nodes are divided by them."""
        ranks = self.tp * self.pp * max(1, self.dp_local)
        return ranks // max(1, self.integer("--nnodes") or 1)

    @property
    def is_expert_parallel(self) -> bool:
        """Whether experts are spread over ranks."""
        return self.switch("--enable-expert-parallel") is True

    @property
    def method(self) -> str | None:
        """The speculative method; None without speculation."""
        node = self.key(SPECULATIVE, "method") or self.json(SPECULATIVE)
        if node is None:
            return self.text("--spec-method")
        return node.value if isinstance(node.value, str) else "draft_model"

    @property
    def num_draft_tokens(self) -> int:
        """Speculative tokens per step; 0 without speculation or if unknown."""
        node = self.key(SPECULATIVE, "num_speculative_tokens")
        if node is not None:
            return as_integer(node) or 0
        return self.integer("--spec-tokens") or 0

    @property
    def is_eager(self) -> bool:
        """Whether graphs are switched off."""
        return self.switch("--enforce-eager") is True or self.graph_mode == "NONE"

    @property
    def graph_mode(self) -> str | None:
        """cudagraph_mode as given; None if it is not."""
        node = self.key(COMPILATION, "cudagraph_mode")
        return node.value.upper() if node is not None and isinstance(node.value, str) else None

    @property
    def has_full_decode_graphs(self) -> bool:
        """Whether whole decode steps are captured."""
        return not self.is_eager and self.graph_mode in FULL_DECODE_MODES

    @cached_property
    def capture_node(self) -> JsonNode | None:
        """The list of capture sizes where it stands in --compilation-config."""
        return self.key(COMPILATION, "cudagraph_capture_sizes")

    @property
    def capture_sizes(self) -> tuple[int, ...]:
        """The stated capture sizes in order; empty if none are stated or one is unknown."""
        node = self.capture_node
        sizes: list[int] = []
        if node is not None and isinstance(node.value, list):
            for item in node.value:
                if not isinstance(item, int) or isinstance(item, bool):
                    return ()
                sizes.append(item)
            return tuple(sizes)
        named = self.get("--cudagraph-capture-sizes")
        words = [value.text for value in named.flag.values] if named else []
        return tuple(int(word) for word in words) if all(word.isdigit() for word in words) else ()

    @cached_property
    def flashcomm1(self) -> Setting | None:
        """FlashComm1 as this version reads it, key before variable; None if nothing it reads is set."""
        key = self.is_key_on("enable_flashcomm1")
        if key is not None and self.version >= FLASHCOMM1_KEY_SINCE:
            return key
        for name in ("VLLM_ASCEND_ENABLE_FLASHCOMM1", "VLLM_ASCEND_ENABLE_FLASHCOMM"):
            is_alias = not name.endswith("1")
            assignment = self.variable(name)
            if assignment is not None and (not is_alias or self.version <= FLASHCOMM_ALIAS_UNTIL):
                return Setting(is_truthy(assignment.value.text), assignment.place)
        return None

    @property
    def has_flashcomm1(self) -> bool:
        """Whether FlashComm1 is on."""
        return self.flashcomm1 is not None and self.flashcomm1.is_on

    @cached_property
    def fused_mc2(self) -> Setting | None:
        """Fused MC2 with its level; None if nothing sets it."""
        node = self.key(ADDITIONAL, "enable_fused_mc2")
        if node is not None and self.version >= FLASHCOMM1_KEY_SINCE:
            level = int(node.value) if isinstance(node.value, bool) else as_integer(node)
            return Setting(bool(level), node.key_place or node.place, level or 0)
        assignment = self.variable("VLLM_ASCEND_ENABLE_FUSED_MC2")
        level = read_integer(assignment.value.text) if assignment else None
        return Setting(level > 0, assignment.place, level) if assignment and level is not None else None

    @property
    def kv_role(self) -> str | None:
        """Role in disaggregated serving; None outside of it."""
        node = self.key(TRANSFER, "kv_role")
        return node.value if node is not None and isinstance(node.value, str) else None

    @property
    def connector(self) -> Connector | None:
        """The KV connector, if it is a known one."""
        node = self.key(TRANSFER, "kv_connector")
        name = node.value if node is not None and isinstance(node.value, str) else ""
        return self.knowledge.connectors.entries.get(name)

    @property
    def max_num_batched_tokens(self) -> int | None:
        """Tokens per step as stated."""
        return self.integer("--max-num-batched-tokens")
