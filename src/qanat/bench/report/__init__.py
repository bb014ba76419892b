"""The report of benchmarks: one HTML file with plots, made of results as they are saved."""
