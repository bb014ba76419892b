"""From a plan to a folder of scripts, manifests and words that run it."""
