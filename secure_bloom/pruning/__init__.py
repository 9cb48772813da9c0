"""Which row groups may hold rows for a filter: predicates, statistics, Bloom filters."""
