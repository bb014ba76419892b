"""How a batch reaches the workers."""
