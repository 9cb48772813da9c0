"""Which row groups may hold matching rows: predicates, statistics, Bloom filters."""
