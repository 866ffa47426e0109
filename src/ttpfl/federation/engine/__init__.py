"""How rounds run: client pools, workers, sessions, interruption."""
