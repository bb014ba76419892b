"""Inputs for each op at the shapes of a model, as a step would call it: for `qanat bench kernels`."""
