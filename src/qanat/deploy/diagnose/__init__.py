"""Finds out of logs and metrics why a service does not start, fails, or is slow."""
