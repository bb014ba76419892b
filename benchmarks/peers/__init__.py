"""The same shapes and workloads on Qanat and on other engines, one command: see docs/performance.md."""
