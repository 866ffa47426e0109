"""Rounds, sessions, and engines that run clients on this machine."""
