"""Doors into Qanat beside the command line: the offline `LLM` class, and vLLM's module path for the server."""
