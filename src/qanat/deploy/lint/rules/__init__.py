"""The checks, registered by the id of their rule in the knowledge base."""
