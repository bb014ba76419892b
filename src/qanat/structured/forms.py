"""What form the output must have, in the words of the grammar library."""

from __future__ import annotations

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.json_schema import json_grammar_source
from qanat.structured.lark import Grammar, TokenId, escaped


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
    if params.json is not None or params.json_object:
        source = json_grammar_source(
            params.json if params.json is not None else {"type": "object"},
            whitespace_pattern=params.whitespace_pattern,
            is_compact=params.disable_any_whitespace,
            is_closed=params.disable_additional_properties,
        )
        return str(LLMatcher.grammar_from_json_schema(source))
    if params.regex is not None:
        return str(LLMatcher.grammar_from_regex(params.regex))
    if params.choice is not None:
        grammar = Grammar(token_id)
        return grammar.text(grammar.terminal("/" + "|".join(escaped(text) for text in params.choice) + "/"))
    if params.grammar is not None:
        try:
            return str(any_to_lark(params.grammar))
        except Exception as error:  # the converter raises bare exceptions
            raise StructuredOutputError(f"The grammar is not understood: {error}.", param="grammar") from None
    raise StructuredOutputError("structural_tag is not supported yet.", param="structural_tag")
