"""What the server computes from the clients' updates."""
