"""Runs a rendered folder on this host: starts what belongs here, follows it until it answers, and stops it again."""
