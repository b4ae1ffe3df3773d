"""Environments: the suite interface and the suites."""
