"""Benchmarks: of the kernels, of a model offline. No torch here: what needs the engine imports it when it runs."""
