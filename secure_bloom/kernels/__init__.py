"""Hash and filter loops: with numpy, and as numba functions that are compiled at build time."""
