"""The server's computations on the clients' results."""
