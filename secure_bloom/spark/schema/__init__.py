"""Spark schemas and Arrow schemas: types, names, sensitive columns, partitions."""
