"""What form the output must have, in the words of the grammar library."""

from __future__ import annotations

from typing import Any

from llguidance import LLMatcher, regex_to_lark

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.grammars import lark_of
from qanat.structured.json_schema import WHITESPACE, SchemaDocument, decoded_schema, schema_text
from qanat.structured.lark import Grammar, TokenId, one_of_texts
from qanat.structured.library import check_schema_source
from qanat.structured.tag_fields import Format, text_of
from qanat.structured.tags import FUNCTION, TagGrammar, decoded_tag
from qanat.structured.xml_arguments import XmlArguments


def grammar_of(params: StructuredOutputsParams, token_id: TokenId) -> str:
    """Translates a form; it is then known to be well-formed as far as that is cheap to know.

    Args:
        params: the form.
        token_id: the id of a token that the tokenizer adds to its vocabulary, such as `<tool_call>`, by its spelling.

    Returns:
        Text for llguidance's `LLMatcher`.

    Raises:
        StructuredOutputError: the form is malformed, or uses what is not supported; the message names it.
    """
    return _Translation(params, token_id).text()


class _Translation:
    def __init__(self, params: StructuredOutputsParams, token_id: TokenId) -> None:
        self._params = params
        self._grammar = Grammar(token_id)

    def text(self) -> str:
        params = self._params
        if params.structural_tag is not None:
            contents = {
                "json_schema": self._json_format,
                "qwen_xml_parameter": self._xml_format,
                "regex": self._regex_format,
                "grammar": self._grammar_format,
            }
            expression = TagGrammar(self._grammar, contents).expression(decoded_tag(params.structural_tag))
            return self._grammar.text(expression)
        if params.regex is not None:
            return self._grammar.text(self._regex(params.regex))
        if params.choice is not None:
            return self._grammar.text(self._choice(params.choice))
        if params.grammar is not None:
            return lark_of(params.grammar)
        schema = {"type": "object"} if params.json is None else params.json
        return str(LLMatcher.grammar_from_json_schema(self._schema(schema, is_lenient=False)))

    def _schema(self, schema: Any, *, is_lenient: bool) -> str:
        params = self._params
        document = SchemaDocument(
            decoded_schema(schema), is_closed=params.disable_additional_properties, is_lenient=is_lenient
        )
        whitespace = None if params.disable_any_whitespace else (params.whitespace_pattern or WHITESPACE)
        return schema_text(document.prepared(), whitespace_pattern=whitespace)

    def _regex(self, pattern: str) -> str:
        return self._grammar.terminal(f"/{regex_to_lark(pattern, '')}/")

    def _choice(self, texts: list[str]) -> str:
        if not texts:
            raise StructuredOutputError("choice needs at least one text.", param="choice")
        return self._grammar.terminal(f"/{one_of_texts(texts)}/")

    def _json_format(self, node: Format) -> str:
        style = node.get("style", "json")
        if style == "qwen_xml":
            return self._xml_format(node)
        if style != "json" or node.get("any_order"):
            raise StructuredOutputError("json_schema's style must be json or qwen_xml, and any_order false.")
        if node.get("strict") is not False:
            return self._json(node, is_lenient=False)
        try:
            return self._json(node, is_lenient=True)
        except StructuredOutputError:
            return self._json({"json_schema": {"type": "object"}}, is_lenient=True)

    def _json(self, node: Format, *, is_lenient: bool) -> str:
        source = self._schema(node.get("json_schema"), is_lenient=is_lenient)
        if is_lenient or FUNCTION in node:  # else the library's word on the whole is early enough
            check_schema_source(source)
        return self._grammar.rule(f"%json {source}")

    def _xml_format(self, node: Format) -> str:
        schema = decoded_schema(node.get("json_schema"))
        if node.get("strict") is not False:
            return self._xml(schema, is_lenient=False)
        try:
            return self._xml(schema, is_lenient=True)
        except StructuredOutputError:
            return self._xml({"type": "object"}, is_lenient=True)

    def _xml(self, schema: Any, *, is_lenient: bool) -> str:
        return XmlArguments(
            self._grammar,
            schema,
            is_lenient=is_lenient,
            is_closed=self._params.disable_additional_properties,
            is_compact=self._params.disable_any_whitespace,
        ).expression()

    def _regex_format(self, node: Format) -> str:
        pattern = text_of(node, "pattern")
        return self._regex(pattern)

    def _grammar_format(self, node: Format) -> str:
        source = text_of(node, "grammar")
        return self._grammar.subgrammar(lark_of(source))
