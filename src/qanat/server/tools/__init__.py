"""Tool calls in a model's output: found by their tags, read while they grow, typed by the tool's schema."""
