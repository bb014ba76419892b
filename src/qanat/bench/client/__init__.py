"""The client of online benchmarks: it stamps and keeps what comes in, and makes sense of it after the run."""
