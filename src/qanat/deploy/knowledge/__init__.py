"""What is known of vLLM-Ascend and its surroundings: typed, by version, each fact with where it comes from."""
