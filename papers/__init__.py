"""The experiments of the four papers, run with the library: `python -m papers NAME`."""
