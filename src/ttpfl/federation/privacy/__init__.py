"""Differential privacy of the rates: mechanism, accountant, composition."""
