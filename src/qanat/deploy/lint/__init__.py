"""Checks of deployment files before anything starts."""
