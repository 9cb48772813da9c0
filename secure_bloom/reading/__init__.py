"""An open file: what is in it, which keys are available, which row groups and rows are read."""
