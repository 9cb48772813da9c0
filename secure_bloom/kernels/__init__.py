"""Hash and filter loops, in two versions: plain Python for few values, numba for bulk work."""
