"""Structured output: from what a request asks for to the masks of its tokens."""
