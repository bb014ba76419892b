"""`qanat router`: one address in front of any number of OpenAI-compatible engines; it loses no stream.

Part of the base install: it speaks HTTP and knows nothing of the inside of an engine.
"""
