"""Reference kernels in plain torch: fp32 inside, one rounding to the result's type at the end."""
