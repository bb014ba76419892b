"""Deployments of vLLM-Ascend: a knowledge base of its versions and a linter; needs neither torch nor a card."""
