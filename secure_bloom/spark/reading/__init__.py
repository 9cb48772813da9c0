"""Reading: the files and row groups that a query needs, and the work of its tasks."""
