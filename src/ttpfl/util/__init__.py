"""Helpers without dependencies on the rest: files, locks, settings, threads, randomness."""
