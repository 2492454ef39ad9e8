"""Published methods to compare with, each with exact noise and an honest receipt."""
