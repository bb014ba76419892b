"""The module path under which vLLM's users start an OpenAI server."""
