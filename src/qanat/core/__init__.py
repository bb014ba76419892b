"""Plain data that every layer shares: requests, batches, outputs, errors. Standard library and msgspec only."""
