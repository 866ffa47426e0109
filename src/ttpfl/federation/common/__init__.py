"""Shared vocabulary: clients, jobs, state, and a model as a vector."""
