"""What every part of a federation speaks of: clients, jobs, state, and a model as a vector."""
