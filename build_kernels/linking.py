"""From an object file (ELF) to a shared library, for x86-64 and aarch64.

The kernels refer only to themselves, by relative addresses. So every reference is resolved here,
and the dynamic linker has nothing to do but to map the file and to find the exported functions.
Specifications: System V ABI and its supplements for both architectures.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

_X86_64, _AARCH64 = 62, 183
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8  # types of sections
_UNWIND = 0x70000001  # of x86-64
_WRITE, _ALLOC = 1, 2  # flags of sections
_PAGE = 1 << 16  # the largest of any kernel
_HEADERS = 64 + 4 * 56
_LOAD, _DYNAMIC, _GNU_STACK = 1, 2, 0x6474E551  # types of segments
_READ_EXECUTE, _READ_WRITE = 5, 6
_SHIFTS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # aarch64: loads of 1 to 16 bytes


@dataclass
class Section:
    """A section of the object file."""

    kind: int
    flags: int
    content: bytes
    link: int
    info: int
    align: int


def link(data: bytes, exported: str) -> bytes:
    """Return a shared library that exports the functions whose names begin with ``exported``."""
    architecture, = struct.unpack_from("<H", data, 18)
    sections = _sections(data)
    symbols = _symbols(sections)
    names = [name for name, section, _ in symbols if section and name.startswith(exported)]
    image = _image(names)
    base = _place(sections, image)
    addresses = [base[section] + value if section in base else None
                 for _, section, value in symbols]
    for section in sections:
        if section.kind == _RELA and section.info in base:
            for place, info, addend in struct.iter_unpack("<QQq", section.content):
                target = addresses[info >> 32]
                if target is None:
                    raise ValueError(f"the kernels need {symbols[info >> 32][0]!r} from elsewhere")
                _relocate(image, architecture, info & 0xFFFFFFFF, base[section.info] + place,
                          target + addend)
    found = {name: address for (name, _, _), address in zip(symbols, addresses, strict=True)}
    return _library(image, architecture, {name: found[name] for name in names})


def library_of(functions: dict[str, bytes], architecture: int = _X86_64) -> bytes:
    """Return a shared library of functions whose machine code needs nothing else."""
    image = _image(functions)
    addresses = {}
    for name, code in functions.items():
        image += bytes(-len(image) % 64)
        addresses[name] = len(image)
        image += code
    return _library(image, architecture, addresses)


def _sections(data: bytes) -> list[Section]:
    start, = struct.unpack_from("<Q", data, 40)
    count, = struct.unpack_from("<H", data, 60)
    found = []
    for number in range(count):
        _, kind, flags, _, offset, size, link, info, align, _ = struct.unpack_from(
            "<IIQQQQIIQQ", data, start + 64 * number)
        if kind == _UNWIND:  # nothing throws exceptions
            flags &= ~_ALLOC
        content = b"" if kind == _NOBITS else data[offset:offset + size]
        if flags & _ALLOC and (kind != _PROGBITS or flags & _WRITE) and size:
            raise ValueError("the kernels have writable data")
        found.append(Section(kind, flags, content, link, info, align))
    return found


def _symbols(sections: list[Section]) -> list[tuple[str, int, int]]:
    """Return name, section and value of each symbol."""
    [table] = [section for section in sections if section.kind == _SYMTAB]
    names = sections[table.link].content
    return [(names[name:names.index(b"\0", name)].decode(), section, value)
            for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table.content)]


def _place(sections: list[Section], image: bytearray) -> dict[int, int]:
    """Append what is needed at run time to the image; returns the address of each section."""
    base = {}
    for number, section in enumerate(sections):
        if section.flags & _ALLOC and section.content:
            image += bytes(-len(image) % max(section.align, 64))
            base[number] = len(image)
            image += section.content
    return base


def _relocate(image: bytearray, architecture: int, kind: int, place: int, target: int) -> None:
    """Write the address of a target into the code at a place."""
    if architecture == _X86_64 and kind in (2, 4):  # PC32, PLT32
        struct.pack_into("<i", image, place, target - place)
    elif architecture == _X86_64 and kind == 24:  # PC64
        struct.pack_into("<q", image, place, target - place)
    elif architecture == _AARCH64:
        _relocate_aarch64(image, kind, place, target)
    else:
        raise ValueError(f"a relocation of type {kind} for architecture {architecture}")


def _relocate_aarch64(image: bytearray, kind: int, place: int, target: int) -> None:
    code, = struct.unpack_from("<I", image, place)
    if kind == 261:  # PREL32
        code = (target - place) & 0xFFFFFFFF
    elif kind in (282, 283):  # JUMP26, CALL26
        code |= (target - place >> 2) & 0x3FFFFFF
    elif kind == 275:  # ADR_PREL_PG_HI21
        pages = (target >> 12) - (place >> 12)
        code |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind == 277:  # ADD_ABS_LO12_NC
        code |= (target & 0xFFF) << 10
    elif kind in _SHIFTS:  # LDST*_ABS_LO12_NC
        code |= ((target & 0xFFF) >> _SHIFTS[kind]) << 10
    else:
        raise ValueError(f"a relocation of type {kind} for aarch64")
    struct.pack_into("<I", image, place, code)


# --- the library ---------------------------------------------------------------------------------

def _image(names: Iterable[str]) -> bytearray:
    """Return the start of a library that exports these functions, still to be filled."""
    return bytearray(_HEADERS + len(_tables(dict.fromkeys(names, 0))[0]))


def _tables(functions: dict[str, int]) -> tuple[bytes, dict[int, int]]:
    """Return hash table, symbols and names, and what describes them in the dynamic section."""
    count = len(functions) + 1
    chain = [*range(2, count), 0]  # one bucket: the first symbol, then each next one
    table = struct.pack(f"<II I{count}I", 1, count, 1, 0, *chain)
    table += bytes(-len(table) % 8)
    strings, symbols = b"\0", bytes(24)
    for name, address in functions.items():
        symbols += struct.pack("<IBBHQQ", len(strings), 1 << 4 | 2, 0, 1, address, 0)
        strings += name.encode() + b"\0"
    start = _HEADERS + len(table)
    tags = {4: _HEADERS, 6: start, 5: start + len(symbols), 10: len(strings), 11: 24, 0: 0}
    return table + symbols + strings, tags


def _library(image: bytearray, architecture: int, functions: dict[str, int]) -> bytes:
    tables, tags = _tables(functions)
    image[_HEADERS:_HEADERS + len(tables)] = tables
    image += bytes(-len(image) % 8)
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags.items())
    code, at = len(image), len(image) + _PAGE  # the dynamic linker may write to its section
    segments = [(_LOAD, _READ_EXECUTE, 0, 0, code, _PAGE),
                (_LOAD, _READ_WRITE, code, at, len(dynamic), _PAGE),
                (_DYNAMIC, _READ_WRITE, code, at, len(dynamic), 8),
                (_GNU_STACK, _READ_WRITE, 0, 0, 0, 16)]
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, architecture, 1, 0, 64, 0, 0,
                         64, 56, len(segments), 64, 0, 0)
    for kind, flags, offset, address, size, align in segments:
        header += struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, align)
    image[:_HEADERS] = header
    return bytes(image) + dynamic
