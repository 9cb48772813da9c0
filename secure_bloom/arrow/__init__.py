"""Everything that uses pyarrow's Parquet layer: keys, encryption, pages, schemas, row filters."""
