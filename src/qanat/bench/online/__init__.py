"""Benchmarks of a running server over its OpenAI-compatible API."""
