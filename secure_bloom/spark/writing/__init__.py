"""Writing: the files of tasks, and how a job commits them."""
