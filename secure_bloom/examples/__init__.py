"""Data for the demo, and an example of a leaking file."""
