"""A running server as its /metrics show it, under vLLM's names."""
