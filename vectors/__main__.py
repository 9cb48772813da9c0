"""python -m parquet_bloom_vectors: print the folder of the test vectors."""

from . import FOLDER

print(FOLDER)
