"""Kernels: the ops that layers call. `ops` holds their contracts, `reference` the plain torch that defines them."""
