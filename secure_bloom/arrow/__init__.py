"""What pyarrow does for this package: keys, encryption, pages, schemas, row filters."""
