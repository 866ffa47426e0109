"""Small helpers that stand alone: files, locks, threads, randomness, lookup."""
