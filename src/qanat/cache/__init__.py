"""Who owns which part of the cache: attention blocks and recurrent states. Bookkeeping only, no tensors."""
