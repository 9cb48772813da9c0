"""Check the filters of a file against its data."""
