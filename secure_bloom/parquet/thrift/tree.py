"""A lossless view of structures in the Thrift compact protocol.

A footer must be changed without losing fields that this software does not know. A structure is
therefore decoded only where a layout requires it; every other value remains the original raw bytes
and is written back unmodified. (In the compact protocol the bytes of a value do not depend on its
position; only field headers do, and those are regenerated.)

A layout is a dict {field id: layout} for a structure and a list [layout] for a list of structures,
[None] for a list whose structures are separated but not decoded. [layout, function] stores
function(structure, start, end) for each structure. A :class:`Recurring` is for a list that is
mostly the same in one structure after the other, and is not decoded.

Memory grows with the bytes, not with the number of fields: beyond :data:`_MANY` fields of one
structure, unknown fields are kept together as bytes.

A field that is repeated in a structure, and an id of more than 16 bits, is refused at any depth.
Libraries that use the first or the last of two fields, or wrap the ids, would otherwise see
different footers in the same bytes. What is not decoded must also have ascending ids.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from secure_bloom.errors import FormatError
from secure_bloom.parquet.compiled_footers import CompiledFooters, compiled_footers
from secure_bloom.parquet.thrift.protocol import (
    BINARY,
    I16,
    I64,
    LIST,
    MAX_ID,
    MIN_ID,
    STRUCT,
    encode_int,
    encode_list_header,
    read_id,
    read_list_header,
    skip,
    skip_struct,
)
from secure_bloom.parquet.thrift.structs import Slices, Struct

_RUN, _RUN_ID = 0, 1 << 64  # several fields together, with their headers

MAX_REMEMBERED = 1 << 15  #: bytes of a value that is kept for the next file
_MAX_STRUCTS = 1_000_000  # in one list, as in Arrow C++: they take far more memory than bytes
_MANY = 100  # fields of a structure, and field ids: more than the format defines
_LARGE = 100_000  # bytes worth loading compiled kernels

Layout: TypeAlias = dict[int, Any]


class Recurring:
    """The last value of a list; the next one is compared with it, which is faster than skipping it.

    A value ends where its own bytes say. So data that begins with the bytes of a complete value
    has this value there.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = b""

    def take(self, data: bytes, position: int) -> bytes:
        """Return the bytes of the list that begins at a position."""
        last = self._last  # another thread may replace it
        if not last or not data.startswith(last, position):
            last = data[position:skip(data, position, LIST, 0)]
            if len(last) <= MAX_REMEMBERED:
                self._last = last
        return last


def decode(data: bytes, layout: Layout, kernels: CompiledFooters | None = None) \
        -> tuple[Struct, int]:
    """Decode one structure from the start of ``data``; also return where it ends.

    Bytes after the structure are allowed: parquet-java pads encrypted structures with zeros.
    Many small structures are decoded faster with the :func:`kernels_for` their total size.

    Raises FormatError if the data is truncated or is not a valid compact-protocol structure.
    """
    data = bytes(data)
    if len(data) >= _LARGE:
        with no_garbage_collection():
            return _decode(data, layout, kernels)
    return _decode(data, layout, kernels)


def _decode(data: bytes, layout: Layout, kernels: CompiledFooters | None) -> tuple[Struct, int]:
    try:
        found = kernels and _decode_by(kernels, data, layout)
        return found or _decode_struct(data, 0, layout)
    except IndexError:
        raise FormatError("a Thrift structure is truncated") from None


def _decode_by(kernels: CompiledFooters, data: bytes, layout: Layout) -> tuple[Struct, int] | None:
    table = np.empty((32, 4), np.int64)
    count, end = kernels.fields(data, table)
    if count < 0:
        return None
    fields = []
    for field_id, type_, start, stop in table[:count].tolist():
        value: Any = data[start:stop]
        wanted = layout.get(field_id)
        if type_ == STRUCT and isinstance(wanted, dict):
            value, _ = _decode_struct(value, 0, wanted)
        elif type_ == LIST and isinstance(wanted, list):
            value, _ = _decode_list(value, 0, *wanted)
        fields.append([field_id, type_, value])
    return Struct(fields), end


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Suspend garbage collection, which a large footer's many small objects trigger needlessly.

    With several threads, the first one that leaves enables it again, which only costs time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def encode(struct: Struct) -> bytes:
    """Return the bytes of a structure."""
    out = bytearray()
    _encode_struct(struct, out)
    return bytes(out)


def kernels_for(size: int) -> CompiledFooters | None:
    """Return the compiled equivalents of this module if there are any, and if they pay off for
    ``size`` bytes.
    """
    return compiled_footers() if size >= _LARGE else None


def structs(struct: Struct, field_id: int) -> Sequence[Any]:
    """Return the structures in a decoded list as stored here; empty if the field is absent."""
    value = struct.get(field_id)
    if isinstance(value, list | Slices):
        return value
    if _is_no_list(value):
        return []
    raise FormatError(f"Thrift field {field_id} is not a list of structures")


def each(struct: Struct, field_id: int, layout: Layout) -> Iterator[Struct]:
    """Yield the structures in a list that is not decoded, one by one, to save memory."""
    raw = struct.get(field_id)
    if _is_no_list(raw):
        return
    try:
        if not isinstance(raw, bytes) or raw[0] & 0x0F != STRUCT:
            raise FormatError(f"Thrift field {field_id} is not a list of structures")
        size, _, position = read_list_header(raw, 0)
        for _ in range(size):
            found, position = _decode_struct(raw, position, layout)
            yield found
    except IndexError:
        raise FormatError("a Thrift list is truncated") from None


def _is_no_list(value: object) -> bool:
    """Whether a field is absent, or an empty list of any type."""
    return value is None or (isinstance(value, bytes) and value[:1] < b"\x10")


def _decode_struct(data: bytes, position: int, layout: Layout) -> tuple[Struct, int]:
    fields: list[list[Any]] = []
    field_id, highest = 0, MIN_ID - 1
    value: Any
    while True:
        header = data[position]
        if header == 0:
            return Struct(fields), position + 1
        if len(fields) >= _MANY:
            return Struct(fields), _decode_rest(data, position, layout, fields, field_id)
        position += 1
        delta = header >> 4
        type_ = header & 0x0F
        if delta:
            field_id += delta
        else:
            field_id, position = read_id(data, position)
        if highest < field_id <= MAX_ID:
            highest = field_id
        else:
            _check_is_new(field_id, [field[0] for field in fields])
        wanted = layout.get(field_id)
        if type_ == STRUCT and isinstance(wanted, dict):
            value, position = _decode_struct(data, position, wanted)
        elif type_ == LIST and isinstance(wanted, list):
            value, position = _decode_list(data, position, *wanted)
        elif type_ == LIST and isinstance(wanted, Recurring):
            value = wanted.take(data, position)
            position += len(value)
        else:
            start = position
            if I16 <= type_ <= I64:  # as skip does, avoiding most calls
                while data[position] >= 0x80:
                    position += 1
                position += 1
            elif type_ == BINARY and data[position] < 0x80:
                position += 1 + data[position]  # beyond the data? then the next header is missing
            else:
                position = skip(data, position, type_, 0)
            value = data[start:position]
        fields.append([field_id, type_, value])


def _decode_rest(data: bytes, position: int, layout: Layout, fields: list[list[Any]],
                 field_id: int) -> int:
    """Add what follows the first fields of a structure; returns where it ends.

    Only fields that the format may define are kept separate.
    """
    known = {field[0] for field in fields}
    value: Any
    while data[position]:
        begin, header = position, data[position]
        type_, position = header & 0x0F, position + 1
        field_id += header >> 4
        if header < 0x10:
            field_id, position = read_id(data, position)
        _check_is_new(field_id, known)
        known.add(field_id)
        start = position
        wanted = layout.get(field_id)
        if type_ == STRUCT and isinstance(wanted, dict):
            value, position = _decode_struct(data, position, wanted)
        elif type_ == LIST and isinstance(wanted, list):
            value, position = _decode_list(data, position, *wanted)
        else:
            position = skip(data, position, type_, 0)
            value = data[start:position]
        if 0 < field_id < _MANY:
            fields.append([field_id, type_, value])
        elif fields[-1][1] == _RUN:
            fields[-1][2] += data[begin:position]
        else:
            fields.append([_RUN_ID, _RUN, bytearray([type_]) + encode_int(field_id) + value])
    return position + 1


def _check_is_new(field_id: int, known: Container[int]) -> None:
    if field_id > MAX_ID:
        raise FormatError("a Thrift field id does not fit into 16 bits")
    if field_id in known:
        raise FormatError(f"Thrift field {field_id} is repeated")


def _decode_list(data: bytes, position: int, layout: Layout | None,
                 keep: Callable[[Struct, int, int], Any] | None = None) \
        -> tuple[bytes | list[Any] | Slices, int]:
    start = position
    size, element, position = read_list_header(data, position)
    if element != STRUCT:
        end = skip(data, start, LIST, 0)
        return data[start:end], end
    if size > _MAX_STRUCTS:
        raise FormatError(f"a Thrift list of {size} structures; at most {_MAX_STRUCTS} are allowed")
    if layout is None:
        if not size:
            return [], position
        bounds = _struct_bounds(data, position, size)
        return Slices(data, bounds), bounds[-1]
    structs: list[Any] = []
    for _ in range(size):
        start = position
        struct, position = _decode_struct(data, position, layout)
        structs.append(struct if keep is None else keep(struct, start, position))
    return structs, position


def _struct_bounds(data: bytes, position: int, size: int) -> array[int]:
    """Return where each of ``size`` consecutive structures begins, and where the last ends."""
    bounds = array("q", [position])
    if kernels := kernels_for(len(data)):
        ends = np.empty(size, np.int64)
        kernels.struct_ends(data, position, ends)
        if ends[-1] >= 0:
            bounds.frombytes(ends.tobytes())
            return bounds
    for _ in range(size):
        position = skip_struct(data, position, 1)
        bounds.append(position)
    return bounds


def _encode_struct(struct: Struct, out: bytearray) -> None:
    last_id = 0
    for field_id, type_, value in struct.fields:
        delta = field_id - last_id
        if type_ == _RUN:
            pass  # it includes the headers of its fields
        elif 0 < delta <= 15:
            out.append(delta << 4 | type_)
        else:
            out.append(type_)
            out += encode_int(field_id)
        last_id = field_id
        if type(value) is bytes:  # as most are; the check for Slices takes long
            out += value
        elif isinstance(value, Struct):
            _encode_struct(value, out)
        elif isinstance(value, list | Slices):
            out += encode_list_header(len(value))
            for element in value:
                if isinstance(element, Struct):
                    _encode_struct(element, out)
                else:
                    out += element
        else:
            out += value
    out.append(0)


