"""Pairs of engines of which one computes the prompt and the other the answer, in the protocols of vLLM-Ascend."""
