"""Federations for tests, in this process and of real ones. Needs Flower."""
