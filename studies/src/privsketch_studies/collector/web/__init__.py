"""What the network sees: routes below /api/v1, the guard before them, the server of both."""
