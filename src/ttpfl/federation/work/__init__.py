"""What a client computes in a round, free of any engine."""
