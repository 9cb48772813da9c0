"""The layer ``footers``: what a plaintext footer says about the values of encrypted columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from secure_bloom.parquet import thrift
from secure_bloom.parquet.footer import Footer
from vectors.builder.faults import Base, Place, base, chunk_of
from vectors.builder.reseal import seeded_random
from vectors.builder.small import Layer
from vectors.builder.vector import Seeded

_REVEALING = 8, 12, 13, 16, 17
_SSN, _NAME = (0, "ssn"), (1, "name")
_META_DATA, _MODULE = 3, 9  # of ColumnChunk
_KEY_VALUE = [8, thrift.LIST, bytes.fromhex("1c18036b6579180576616c756500")]  # key=value
_NULL_COUNT = [12, thrift.STRUCT, bytes.fromhex("360000")]  # 0
_STATISTICS = [12, thrift.STRUCT, bytes.fromhex("58017a18016100")]  # max_value "z", min_value "a"
_ENCODING_STATS = [13, thrift.LIST, bytes.fromhex("1c15001500150200")]  # one PLAIN data page
_SIZE_STATISTICS = [16, thrift.STRUCT, bytes.fromhex("164200")]  # all values have 33 bytes
_GEOSPATIAL = [17, thrift.STRUCT, bytes.fromhex("00")]  # nothing, but it is there


def footers() -> Layer:
    """Signed plaintext footers, with fields that the redacted copies should not have."""
    layer = Layer("footers", "vectors/builder/footers.py, from footers of secure_bloom")
    for name, comment, change, fields in _cases():
        good = base("signed")
        with seeded_random(Seeded(f"footer_{name}")):
            footer = _signed(good, change)
        layer.add(f"footer_{name}", "revealed", {"footer": footer}, "listed", {"fields": fields},
                  comment=comment)
    return layer


def _cases() -> Iterable[tuple[str, str, Callable[[Footer], None], list[str]]]:
    yield ("with_all", "all of them, in every encrypted column chunk", _with_all,
           [f"{group}:{column}:{field}" for group in range(2) for column in ("ssn", "name")
            for field in _REVEALING])
    yield ("redacted", "the statistics of a plaintext column are not revealed: they may be there",
           lambda _: None, [])
    for field, name in ((_STATISTICS, "statistics"), (_ENCODING_STATS, "encoding_stats"),
                        (_SIZE_STATISTICS, "size_statistics")):
        yield (f"with_{name}", f"the copy for readers without the key has {name}",
               _adding(_SSN, field), [f"0:ssn:{field[0]}"])
    yield ("with_null_count", "statistics need no minimum and maximum to reveal something",
           _adding(_NAME, _NULL_COUNT), ["1:name:12"])
    yield ("with_key_value_metadata", "what a writer says about the column chunk",
           _adding(_NAME, _KEY_VALUE), ["1:name:8"])
    yield ("with_geospatial_statistics", "bounding boxes are statistics, too",
           _adding(_NAME, _GEOSPATIAL), ["1:name:17"])
    yield ("without_module", "the only metadata of an encrypted column is not encrypted",
           _opened, ["0:ssn:12"])


def _adding(place: Place, field: list) -> Callable[[Footer], None]:
    return lambda footer: _add(chunk_of(footer, place), field)


def _add(chunk, field: list) -> None:
    chunk.to_change()
    chunk.exposed_metadata.set(*field)
    chunk._decoded.meta = None  # the module stays as it is


def _with_all(footer: Footer) -> None:
    for place in ((group, column) for group in range(2) for column in ("ssn", "name")):
        for field in (_KEY_VALUE, _STATISTICS, _ENCODING_STATS, _SIZE_STATISTICS, _GEOSPATIAL):
            _add(chunk_of(footer, place), field)


def _opened(footer: Footer) -> None:
    chunk = chunk_of(footer, _SSN)
    meta, struct = chunk.metadata(), chunk.to_change()
    for field in _REVEALING:
        meta.remove(field)
    meta.set(*_STATISTICS)
    struct.remove(_MODULE)
    struct.set(_META_DATA, thrift.STRUCT, meta)
    chunk._decoded.meta = None


def _signed(good: Base, change: Callable[[Footer], None]) -> bytes:
    """The changed footer with its signature; ``Footer.to_bytes`` would redact it."""
    footer = good.footer()
    change(footer)
    content = footer._content()
    return content + footer.crypto.footer_cipher.sign(content, footer._footer_aad())
