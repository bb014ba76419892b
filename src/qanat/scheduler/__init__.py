"""What each step computes: continuous batching over one token budget. Decisions only, no tensors."""
