"""Bytes at rest: files, atomic output, rewriting, operations on many files, commits of folders."""
