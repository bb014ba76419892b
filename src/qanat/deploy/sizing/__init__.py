"""What a deployment takes: memory of weights, caches and buffers, and the sizes of graphs."""
