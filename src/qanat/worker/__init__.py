"""The device side: rows, buffers, the forward pass, and the sampler."""
