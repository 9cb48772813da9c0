"""Data of the demo, and a file that leaks."""
