"""What compiled kernels offer: the functions that machine code exports, and their sources.

The build writes machine code with these functions, and :mod:`secure_bloom.kernels.native` calls
them. Nothing here needs numba.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

BUILT = Path(__file__).parent / "built"  #: where the build puts machine code
MANIFEST = "manifest.json"  #: a file there that describes it
PREFIX = "secure_bloom_"  #: of the names of exported functions

#: Name -> arguments. An array is two arguments, its address and the length of its first dimension;
#: "uint32*8" has rows of 8 elements. A function returns an int64.
FUNCTIONS = {
    "hash_words_32": ("uint32*", "uint64*"),
    "hash_words_64": ("uint64*", "uint64*"),
    "hash_fixed": ("uint8*", "int64", "uint64*"),
    "hash_binary_32": ("int32*", "uint8*", "uint64*"),
    "hash_binary_64": ("int64*", "uint8*", "uint64*"),
    "insert_32": ("uint32*8", "uint32*", "int64"),
    "insert_64": ("uint32*8", "uint64*", "int64"),
    "check": ("uint32*8", "uint64*", "boolean*"),
    "sort": ("uint64*", "uint64*", "int64"),
    "distribute": ("uint64*", "uint64*", "uint64*"),
    "gather": ("uint64*", "uint64*", "uint64*"),
    "scatter": ("uint64*", "uint64*", "uint64*"),
    "unite": ("uint64*", "int64"),
    "narrow": ("uint64*", "int64", "int64", "int64"),
    "encode_pages": ("uint64*", "int64*", "uint8*", "int64*", *["int64"] * 5),
    "struct_ends": ("uint8*", "int64", "int64*"),
    "fields": ("uint8*", "int64*4"),
    "with_bloom_filters": ("uint8*", "int64*", "int64*2", "uint8*", "int64*"),
}

#: All modules that compiled kernels consist of, and the table above.
SOURCES = ("kernels/blocks", "kernels/compiling", "kernels/hashing", "kernels/interface",
           "kernels/pairs", "kernels/scalar", "kernels/simd", "kernels/sorting", "kernels/xxh64",
           "parquet/footer_kernels", "parquet/thrift/protocol")


def sources_digest() -> str:
    """Return the SHA-256 of all sources of the kernels, as hexadecimal digits.

    Raises OSError if they are not files.
    """
    folder, digest = Path(__file__).parent.parent, sha256()
    for module in SOURCES:
        digest.update((folder / f"{module}.py").read_bytes())
    return digest.hexdigest()
