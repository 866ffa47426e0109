"""State of a run, checkpoints, callbacks and logs."""
