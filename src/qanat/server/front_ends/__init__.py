"""Several server processes behind one address: the parent that owns address and engine, and its front ends."""
