"""Which built kernels this CPU can execute.

A level of x86-64 (x86-64 psABI) is usable only if the CPU has every feature of it, and if the
operating system saves the registers that it uses.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

from secure_bloom.kernels.interface import PREFIX

ASKING = "x86-64"  #: the library with the instructions that ask the CPU

_EBX, _ECX = 1, 2  # of the four registers that cpuid fills
_EXTENDED = 0x8000_0000

#: Level -> {(leaf of cpuid, register): bits}, and the registers to be saved: bits of XCR0.
_NEEDED: dict[str, tuple[dict[tuple[int, int], tuple[int, ...]], tuple[int, ...]]] = {
    "x86-64-v2": ({
        (1, _ECX): (0, 9, 13, 19, 20, 23),  # SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
        (_EXTENDED + 1, _ECX): (0,)}, ()),  # LAHF and SAHF
    "x86-64-v3": ({
        (1, _ECX): (12, 22, 26, 27, 28, 29),  # FMA, MOVBE, XSAVE, OSXSAVE, AVX, F16C
        (7, _EBX): (3, 5, 8),  # BMI1, AVX2, BMI2
        (_EXTENDED + 1, _ECX): (5,)}, (1, 2)),  # LZCNT; XMM, YMM
    "x86-64-v4": ({
        (7, _EBX): (16, 17, 28, 30, 31)}, (5, 6, 7)),  # AVX-512 F, DQ, CD, BW, VL; its registers
}


def architecture() -> str | None:
    """Return ``x86-64`` or ``aarch64``; None for machines for which no kernels are built."""
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return None
    return {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}.get(
        platform.machine().lower())


def levels(asking: Path) -> list[str]:
    """Return the levels that this x86-64 CPU can execute, the fastest first.

    ``asking`` is the library :data:`ASKING`. Raises OSError if it cannot be loaded.
    """
    return _levels_of(_Cpu(ctypes.CDLL(str(asking))))


class _Cpu:
    """The CPU that executes this."""

    def __init__(self, library: ctypes.CDLL):
        self._cpuid = getattr(library, f"{PREFIX}cpuid")
        self._cpuid.argtypes = ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        self._xgetbv = getattr(library, f"{PREFIX}xgetbv")
        self._xgetbv.restype = ctypes.c_uint64

    def registers(self, leaf: int) -> tuple[int, ...]:
        """Return EAX, EBX, ECX and EDX of a leaf; zeros if the CPU does not have it."""
        out = (ctypes.c_uint32 * 4)()
        self._cpuid(leaf & _EXTENDED, 0, out)
        if out[0] < leaf:
            return (0, 0, 0, 0)
        self._cpuid(leaf, 0, out)
        return tuple(out)

    def saved(self) -> int:
        """Return XCR0; only if the CPU has OSXSAVE, otherwise the instruction is invalid."""
        return int(self._xgetbv())


def _levels_of(cpu: _Cpu) -> list[str]:
    found: list[str] = []
    for level, (features, saved) in _NEEDED.items():
        if not all(_has(cpu.registers(leaf)[register], bits)
                   for (leaf, register), bits in features.items()):
            break
        if saved and not _has(cpu.saved(), saved):
            break
        found.insert(0, level)
    return found


def _has(value: int, bits: tuple[int, ...]) -> bool:
    return all(value >> bit & 1 for bit in bits)
