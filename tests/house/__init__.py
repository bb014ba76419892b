"""Tests of the house: packaging, scripts, documentation."""
