"""The layers ``blocks``, ``bitsets``, ``fold-merge`` and ``sizing``."""

from __future__ import annotations

import struct

from vectors.builder import reference
from vectors.builder.small import Layer, flipped
from vectors.builder.vector import Seeded

_HASHES = {"zero": 0, "one": 1, "ones": 2**64 - 1, "lower_half": 2**32 - 1,
           "upper_half": (2**32 - 1) << 32, "top_bit": 1 << 63,
           "parquet": 0x9C1F_5E0B_72D3_A846, "alternating": 0xAAAA_AAAA_5555_5555}
_MANY = 0x0123_4567_89AB_CDEF


def _hex(hash: int) -> bytes:
    return hash.to_bytes(8, "big")


def blocks() -> Layer:
    """Masks, block numbers, insert and check; checks with each single bit missing."""
    layer = Layer("blocks", "vectors/builder/reference.py")
    for name, hash in _HASHES.items():
        block = reference.block_bytes(reference.mask(hash))
        layer.add(f"mask_{name}", "mask", {"hash": _hex(hash)}, "computed", {"block": block})
    for name in ("zero", "ones", "upper_half", "parquet"):
        for num_blocks in (1, 3, 1024):
            layer.add(f"index_{name}_of_{num_blocks}", "index",
                      {"hash": _hex(_HASHES[name]), "num_blocks": num_blocks}, "computed",
                      {"index": reference.block_index(_HASHES[name], num_blocks)})
    for num_blocks, fault in ((0, "no filter has 0 blocks"), (-1, "a negative number of blocks"),
                              (2**22 + 1, "more than 128 MiB")):
        layer.add(f"index_of_{num_blocks}_blocks", "index",
                  {"hash": _hex(_MANY), "num_blocks": num_blocks}, "invalid_size", fault=fault)
    one, other = (reference.block_bytes(reference.mask(hash)) for hash in (_MANY, 2**64 - 1))
    both = bytes(a | b for a, b in zip(one, other, strict=True))
    layer.add("insert_into_empty", "insert", {"hash": _hex(_MANY), "block": bytes(32)}, "computed",
              {"block": one})
    layer.add("insert_second", "insert", {"hash": _hex(_MANY), "block": other}, "computed",
              {"block": both})
    layer.add("insert_again", "insert", {"hash": _hex(_MANY), "block": both}, "computed",
              {"block": both})
    _checks(layer, one, both)
    return layer


def _checks(layer: Layer, one: bytes, both: bytes) -> None:
    for name, block in (("alone", one), ("among_others", both), ("full", b"\xff" * 32)):
        layer.add(f"check_{name}", "check", {"hash": _hex(_MANY), "block": block}, "present")
    for word, bits in enumerate(reference.mask(_MANY)):
        missing = flipped(b"\xff" * 32, word * 32 + bits.bit_length() - 1)
        layer.add(f"check_bit_missing_in_word_{word}", "check",
                  {"hash": _hex(_MANY), "block": missing}, "absent")
    layer.add("check_empty", "check", {"hash": _hex(_MANY), "block": bytes(32)}, "absent")
    layer.add("check_inverse", "check",
              {"hash": _hex(_MANY), "block": bytes(255 - byte for byte in one)}, "absent")


# --- bitsets -------------------------------------------------------------------------------------

_INTS = [struct.pack("<q", i * 7919) for i in range(-20, 20)]
_WORDS = [b"Hello", b"This is", None, b"a", b"test", b"", b"How", b"are you", None, b"a"]
_VALUES = {
    "int64": ("INT64", None, _INTS),
    "int32": ("INT32", None, [struct.pack("<i", i * 31) for i in range(30)]),
    "double": ("DOUBLE", None, [struct.pack("<d", i / 7) for i in range(25)]),
    "strings_with_nulls": ("BYTE_ARRAY", None, _WORDS),
    "fixed": ("FIXED_LEN_BYTE_ARRAY", 4, [b"%04d" % i for i in range(20)]),
    "int96": ("INT96", None, [struct.pack("<qi", i, 2_460_000) for i in range(10)]),
    "nothing": ("INT64", None, []),
    "only_nulls": ("BYTE_ARRAY", None, [None, None]),
}


def bitsets() -> Layer:
    """Filters of value lists, in sizes that are powers of two and in others."""
    layer = Layer("bitsets", "vectors/builder/reference.py, hashes by xxHash")
    for name, (physical_type, length, values) in _VALUES.items():
        for num_blocks in (1, 8) if name != "int64" else (1, 3, 16, 200):
            bits = reference.bitset(reference.hashes(values), num_blocks)
            layer.add(f"build_{name}_{num_blocks}_blocks", "build",
                      {"physical_type": physical_type, "type_length": length,
                       "num_bytes": len(bits), "values": values}, "built", {"bitset": bits})
    for num_bytes, fault in ((0, "no blocks"), (31, "less than a block"), (33, "a broken block"),
                             (48, "a broken block"), (-32, "a negative number of bytes"),
                             (2**27 + 32, "more than 128 MiB")):
        layer.add(f"build_{num_bytes}_bytes", "build",
                  {"physical_type": "INT64", "num_bytes": num_bytes, "values": _INTS[:1]},
                  "invalid_size", fault=fault)
    layer.add("build_value_too_short", "build",
              {"physical_type": "INT64", "num_bytes": 32, "values": [*_INTS[:2], b"\0" * 7]},
              "wrong_length", fault="the last value has 7 bytes, an INT64 has 8")
    _asked(layer)
    return layer


def _asked(layer: Layer) -> None:
    for name, (physical_type, length, values) in _VALUES.items():
        for num_blocks in (1, 5):
            bits = reference.bitset(reference.hashes(values), num_blocks)
            width = len(values[0] or b"") if values else 8
            others = [Seeded(f"{name} {i}").bytes(width or 5) for i in range(12)]
            asked = [value for value in values if value is not None][:6] + others
            answers = [reference.check(bits, hash) for hash in reference.hashes(asked)]
            layer.add(f"check_{name}_in_{num_blocks}_blocks", "check",
                      {"physical_type": physical_type, "type_length": length, "bitset": bits,
                       "values": asked}, "checked", {"answers": answers})
    for size, fault in ((0, "no bits at all"), (31, "less than a block"), (33, "a broken block")):
        layer.add(f"check_in_{size}_bytes", "check",
                  {"physical_type": "INT64", "bitset": b"\xff" * size, "values": _INTS[:1]},
                  "invalid_size", fault=fault)


# --- fold and merge ------------------------------------------------------------------------------

def fold_merge() -> Layer:
    """Folding is right if it gives the filter that the smaller size had given at once."""
    layer = Layer("fold-merge", "vectors/builder/reference.py, hashes by xxHash")
    hashes = reference.hashes(_INTS)
    for before, after in ((2, 1), (4, 2), (16, 8), (16, 4), (16, 1), (6, 3), (6, 2), (9, 3),
                          (5, 1), (4, 4)):
        layer.add(f"fold_{before}_to_{after}", "fold",
                  {"bitset": reference.bitset(hashes, before), "num_bytes": after * 32}, "folded",
                  {"bitset": reference.bitset(hashes, after)})
    four = reference.bitset(hashes, 4)
    for num_bytes, fault in ((96, "3 blocks do not divide 4"), (0, "no blocks"),
                             (256, "more blocks than before"), (33, "a broken block"),
                             (-32, "a negative number of bytes")):
        layer.add(f"fold_128_bytes_to_{num_bytes}", "fold",
                  {"bitset": four, "num_bytes": num_bytes}, "invalid_size", fault=fault)
    layer.add("fold_of_nothing", "fold", {"bitset": b"", "num_bytes": 32}, "invalid_size",
              fault="no bits at all")
    parts = [reference.bitset(hashes[i::3], 4) for i in range(3)]
    layer.add("merge_three", "merge", {"bitsets": parts}, "merged", {"bitset": four})
    layer.add("merge_with_empty", "merge", {"bitsets": [four, bytes(128)]}, "merged",
              {"bitset": four})
    layer.add("merge_with_itself", "merge", {"bitsets": [four, four]}, "merged", {"bitset": four})
    for name, size in (("other_size", 64), ("broken_block", 127), ("nothing", 0)):
        layer.add(f"merge_with_{name}", "merge", {"bitsets": [four, bytes(size)]}, "invalid_size",
                  fault=f"128 bytes and {size}")
    return layer


# --- sizing --------------------------------------------------------------------------------------

def sizing() -> Layer:
    """Probabilities and sizes, the specification's own table among them."""
    layer = Layer("sizing", "vectors/builder/reference.py, 40 digits")
    for num_blocks, ndv in ((1, 0), (1, 1), (1, 10), (1, 1000), (32, 1024), (1024, 24000),
                            (1000, 26214), (2**22, 10**8), (3, 100)):
        layer.add(f"fpp_of_{ndv}_in_{num_blocks}", "fpp", {"num_blocks": num_blocks, "ndv": ndv},
                  "computed", {"fpp": reference.fpp(num_blocks, ndv)})
    for num_blocks, fault in ((0, "no blocks"), (-1, "a negative number of blocks"),
                              (2**22 + 1, "more than 128 MiB")):
        layer.add(f"fpp_in_{num_blocks}", "fpp", {"num_blocks": num_blocks, "ndv": 10},
                  "invalid_size", fault=fault)
    for wanted in (0.1, 0.01, 0.001, 0.0001, 0.00001):
        for power_of_two in (False, True):
            layer.add(f"blocks_for_{wanted:f}".rstrip("0") + "_power" * power_of_two, "blocks",
                      {"ndv": 100_000, "fpp": wanted, "power_of_two": power_of_two}, "computed",
                      {"num_blocks": reference.blocks(100_000, wanted,
                                                      power_of_two=power_of_two)},
                      comment="a row of the specification's table, bits for each value"
                      if not power_of_two else None)
    for ndv, wanted in ((0, 0.01), (1, 0.5), (10**12, 0.01)):
        layer.add(f"blocks_for_{ndv}_values", "blocks",
                  {"ndv": ndv, "fpp": wanted, "power_of_two": True}, "computed",
                  {"num_blocks": reference.blocks(ndv, wanted, power_of_two=True)
                   if ndv < 10**9 else 2**22})
    for wanted in (0.0, 1.0, -0.5, 1.5):
        layer.add(f"blocks_at_{wanted}", "blocks",
                  {"ndv": 10, "fpp": wanted, "power_of_two": True}, "invalid_fpp",
                  fault="the probability is not between 0 and 1")
    layer.add("blocks_for_minus_one", "blocks", {"ndv": -1, "fpp": 0.01, "power_of_two": True},
              "invalid_ndv", fault="a negative number of values")
    return layer
