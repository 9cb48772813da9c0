"""Bytes at rest: files, atomic output, rewriting in place, and the commit protocol of folders."""
