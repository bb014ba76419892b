"""Questions to a running service whose answers show whether it works; any server of the OpenAI API can be asked."""
