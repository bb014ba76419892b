"""The formats of quantised checkpoints: one family of formats a file."""
