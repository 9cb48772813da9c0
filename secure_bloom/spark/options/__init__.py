"""The options of the data source."""
