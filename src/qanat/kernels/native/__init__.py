"""The native CPU provider: ops in C++ (`csrc/`) that keep a row's bits whatever stands beside it (rules R1 to R12).

The module is built where a C++ compiler was found at installation. Without it, and for what it does not cover, the
reference kernels run.
"""
