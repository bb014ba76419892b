"""A rendered folder as those who write it and those who read it agree on it."""
