"""The public recipe that all holders share, and all that is foretold from it."""
