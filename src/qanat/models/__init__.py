"""Models: the decoder skeleton, one file per family, and everything that fills them with weights."""
