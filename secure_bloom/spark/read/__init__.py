"""Reading: which files and row groups a query needs, and what its tasks do."""
