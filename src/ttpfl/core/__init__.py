"""The algorithm: directions, rates, and how a model moves. Works on any model and any data."""
