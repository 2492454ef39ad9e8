"""Real tables that come inside of packages (benchmarks/requirements-data.txt)."""
