"""Hash and filter loops: with numpy, and in numba functions that the build of the package compiles."""
