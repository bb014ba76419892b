"""Traces and oracles for the benchmark of the prefix cache."""
