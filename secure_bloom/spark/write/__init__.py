"""Writing: what tasks write, and how a job commits it."""
