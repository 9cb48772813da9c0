"""Data sets: one file, a folder of files or a list of them, as one table."""
