"""Commands of the collector: to serve it, to run it, and to push and pull."""
