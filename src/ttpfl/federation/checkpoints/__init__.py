"""Checkpoints, identity of a run, callbacks, progress and logs."""
