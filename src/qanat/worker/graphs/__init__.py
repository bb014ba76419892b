"""Graphs: steps that are recorded once per size and replayed on static buffers."""
