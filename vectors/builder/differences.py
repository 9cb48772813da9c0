"""Why known implementations answer otherwise than the vectors expect.

Found by reading their messages and trying them; a difference without an entry here stops the
builder, and so does an entry that explains none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# For each implementation: a pattern of names of cases, and the reason.
_REASONS = {
    "parquet-java": [
        (r"header_with_2048_unknown_bytes", "reads headers of any length, as it may"),
        (r"header_claims_(134217760|1073741824|2147483616)",
         "refuses bitsets of more than 128 MiB as malformed, although their size is valid"),
        (r"\w+-column-encryption-unknown",
         "throws an unexpected exception when it opens the file: one column makes all unreadable"),
        (r"check_in_(0|31)_bytes",
         "accepts bitsets of any length; probing one that is too short ends in an "
         "IndexOutOfBoundsException"),
        (r"check_in_33_bytes|header_of_\d+_bytes|\w+-bitset-of-\d+-bytes",
         "does not check that a bitset has a whole number of blocks, and ignores an incomplete "
         "one"),
        (r"blocks_for_0\.01_power",
         "sizes by the formula of a standard Bloom filter, which neglects that blocks are loaded "
         "unevenly: the filter misses the probability"),
        (r"blocks_for_minus_one", "does not refuse a negative number of values"),
        (r"header_claims_more_than_an_i32", "its Thrift library truncates a varint to 32 bits"),
        (r"header_\w+_without_member",
         "its Thrift library rejects an empty union, so there is no header"),
        (r"header_ends_with_0x20",
         "its Thrift library looks at the lower four bits of a stop byte only"),
        (r"header_algorithm_and_a_\w+",
         "its Thrift library takes what follows a union's first member for the end of the union: "
         "refused as malformed"),
        (r"aad_\w+", "omits ordinals that a module does not have"),
        (r"module_\w+_one_byte_more",
         "reads a module from a stream and does not check what follows"),
        (r"module_\w+_(length_2147483647|length_big_endian|without_length)"
         r"|\w+-(header|bitset)-module-length-2147483647|\w+-filter-text|columns-offset-0",
         "allocates the length stored before a module before it reads: OutOfMemoryError with "
         "a heap of 1 GiB"),
        (r"\w+-filter-length-2-gib",
         "allocates bloom_filter_length before it reads: OutOfMemoryError"),
        (r"material_not_utf8",
         "replaces invalid UTF-8, and requests a key with another name"),
        (r"material_no_masterKeyID", "requests the key null"),
        (r"material_(number_as_key_name|double_as_text)",
         "does not check the types of fields: ClassCastException"),
        (r"material_no_\w+", "does not check that a field is present: an unexpected exception"),
        (r"material_data_key_of_10_bytes", "does not check the length of an unwrapped key"),
        (r"\w+-filter-length-(0|negative)",
         "treats a bloom_filter_length that is not positive as absent"),
        (r"\w+-filter-length-past-footer", "does not compare bloom_filter_length with the footer"),
        (r"plain-(filter-length-(one-short|without-bitset)|header-claims-more)",
         "does not compare bloom_filter_length with the header, which it trusts"),
        (r"\w+-offset-negative", "treats a negative bloom_filter_offset as absent"),
        (r"\w+-(plaintext-(filter|header)|filter-zeros|offset-one-late|byte-missing"
         r"|header-module-length-(0|4294967295|past-filter))|arrow-rs-\w+",
         "finds an impossible length of the header's module, logs a warning and continues without "
         "the filter: the reader is not told"),
        (r"columns-footer-length-one-less",
         "finds an empty union in the shifted bytes, and reports the algorithm as unsupported"),
        (r"plain-magic-pare", "requests keys as soon as it sees the magic"),
        (r"\w+-footer-stripped",
         "rejects a plaintext file as a whole if it was given keys"),
        (r"stored-(column-metadata-.*|file-unique-bit-resealed|no-footer-key)",
         "decrypts the metadata of columns with the footer key on opening: the whole file is "
         "rejected"),
        (r"single-column-key-metadata-external",
         "has no store for the column's key material, since the footer's is in the file: "
         "NullPointerException"),
    ],
    "Arrow C++": [
        (r"header_with_2048_unknown_bytes", "reads headers of any length, as it may"),
        (r"header_claims_(134217760|1073741824|2147483616)",
         "refuses bitsets of more than 128 MiB as malformed, although their size is valid"),
        (r"\w+-column-encryption-unknown",
         "takes the column for one without a filter, or without a key"),
        (r"index_\w+_of_3|build_int64_(3|200)_blocks|check_\w+_in_5_blocks|fold_\w+"
         r"|header_96_bytes_no_power_of_two|\w+-three-blocks|java-(3|200)-blocks(-ctr)?",
         "rejects filters whose number of blocks is not a power of two, which the specification "
         "allows"),
        (r"blocks_for_0\.01_power",
         "sizes by the formula of a standard Bloom filter, which neglects that blocks are loaded "
         "unevenly: the filter misses the probability"),
        (r"header_claims_more_than_an_i32", "its Thrift library truncates a varint to 32 bits"),
        (r"header_ends_with_0x20",
         "its Thrift library looks at the lower four bits of a stop byte only"),
        (r"header_algorithm_and_a_\w+",
         "its Thrift library skips an unknown member of a union after a known one"),
        (r"aad_\w+",
         "does not check ordinals: negative and missing ones are written, superfluous ones are "
         "omitted"),
        (r"module_\w+_one_byte_more", "accepts a buffer that is longer than the module"),
        (r"material_kek_id_no_base64",
         "unwraps the key-encryption key before it checks its id"),
        (r"material_data_key_of_10_bytes", "does not check the length of an unwrapped key"),
        (r"\w+-(bitset-ctr|header-twice|plaintext-bitset"
         r"|filter-length-(one-short|without-bitset))",
         "compares the length of the bitset's module with the header before it decrypts, and "
         "reports a mismatch as malformed"),
        (r"columns-offset-(0|in-footer)",
         "does not compare the offset with pages and footer; the bytes there are not a module"),
        (r"columns-footer-length-one-less",
         "finds an empty union in the shifted bytes, and reports the algorithm as unsupported"),
        (r"plain-magic-pare", "requests keys as soon as it sees the magic"),
        (r"\w+-footer-stripped",
         "rejects a plaintext file as a whole if it was given keys"),
        (r"stored-column-metadata-.*|arrow-rs-signed",
         "does not notice: under a plaintext footer it does not seem to decrypt the encrypted "
         "metadata of columns with the footer key"),
        (r"supplied-empty-prefix", "treats an empty AAD prefix as none"),
    ],
    "arrow-rs": [
        (r"header_with_2048_unknown_bytes", "reads headers of any length, as it may"),
        (r"\w+-column-encryption-unknown",
         "rejects the whole file as malformed: one column makes all unreadable"),
        (r"arrow-rs-\w+",
         "does not encrypt Bloom filters, and reads plaintext ones of encrypted columns"),
        (r"hash_boolean\w*", "hashes booleans, and writes filters of such columns"),
        (r"index_of_0_blocks|build_(0|31)_bytes|check_in_(0|31)_bytes",
         "accepts bitsets of any length; using one without a block panics"),
        (r"build_(33|48)_bytes|check_in_33_bytes|header_of_\d+_bytes|plain-bitset-of-\d+-bytes",
         "does not check that a bitset has a whole number of blocks, and ignores an incomplete "
         "one"),
        (r"index_of_4194305_blocks|build_134217760_bytes|header_claims_\d+",
         "does not limit the size of a bitset"),
        (r"fold_\w+", "panics if the number of blocks is not a power of two"),
        (r"blocks_for_0\.01_power",
         "sizes by the formula of a standard Bloom filter, which neglects that blocks are loaded "
         "unevenly: the filter misses the probability"),
        (r"header_unknown_field_in_member",
         "rejects fields in the members of unions, which a later version may add"),
        (r"header_\w+_is_a_number|header_num_bytes_is_a_struct",
         "does not check the types of fields: bytes of another type are read as the expected one"),
        (r"header_\w+_without_member", "rejects an empty union, so there is no header"),
        (r"header_ends_with_0x20", "looks at the lower four bits of a stop byte only"),
        (r"header_algorithm_and_a_\w+", "refuses a second member of a union as malformed"),
        (r"plain-filter-length-(one-short|without-bitset)|plain-header-claims-[\w-]+",
         "does not compare bloom_filter_length with the header: the rest of that length is the "
         "bitset"),
        (r"\w+-filter-length-negative",
         "panics, because it takes a negative bloom_filter_length for a huge one"),
        (r"plain-magic-pare", "requests keys as soon as it sees the magic"),
        (r"\w+-magic-pare",
         "takes the plaintext footer for the metadata of the encryption, whose algorithm is then "
         "unknown"),
        (r"plain-offset-at-page",
         "does not compare the offset with the pages, and finds an unknown algorithm there"),
        (r"\w+-(column-metadata-[\w-]+|file-unique-bit-resealed|wrong-column-key)",
         "decrypts the metadata of columns on opening: the whole file is rejected"),
        (r"signed-column-keys-alone", "takes column keys only together with a footer key"),
    ],
}


def reason(implementation: str, case: str) -> str:
    """Why an implementation answers a case otherwise.

    Raises
    ------
    LookupError
        If nobody has written it down.
    """
    for pattern, why in _REASONS.get(implementation, ()):
        if re.fullmatch(pattern, case):
            return why
    raise LookupError(f"{implementation} differs in {case}, and no reason is recorded")


def unused(found: Mapping[str, set[str]]) -> list[str]:
    """Reasons that explain nothing, where these were found."""
    return [f"{implementation}: {why}" for implementation, reasons in _REASONS.items()
            for _, why in reasons if why not in found.get(implementation, ())]
