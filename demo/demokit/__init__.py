"""Tasks, vocabulary, model and training loop of the demo model; not part of the installed package."""
