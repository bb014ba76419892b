"""Looks at a host before a deployment is started on it."""
