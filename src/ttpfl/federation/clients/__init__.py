"""A client's computations in a round, independent of any engine."""
