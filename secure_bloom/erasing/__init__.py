"""Remove the rows of certain values from files and folders, and show that they are gone."""
