"""Other systems, each behind a command line of its own: `protocol` says how they are asked."""
