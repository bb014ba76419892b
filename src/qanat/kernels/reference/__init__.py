"""Reference kernels in plain torch, slow and obvious.

Sums run in fp32. Where an op has a step between its sums and its result, it rounds to the activation type at the
same places as transformers' own code for these models, so that bf16 results can be compared with it: a random
model's gates turn half a bf16 ulp into another token. In fp32 these roundings do nothing.

A row's result has the same bits whatever rows stand beside it, and however its sequence was cut (rule R1).
"""
