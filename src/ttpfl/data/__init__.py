"""Federated data: images, the shifts between clients, and the clients themselves."""
