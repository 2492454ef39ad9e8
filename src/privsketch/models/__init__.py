"""Models, which learning returns, with their files and pictures."""
