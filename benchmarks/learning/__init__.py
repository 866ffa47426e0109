"""Populations and helpers of the studies of rate learning."""
