"""Hash and filter loops, twice: plain Python for a few values, numba for bulk work."""
