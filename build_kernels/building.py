"""The files that the package loads: a shared library for each CPU, and a manifest."""

from __future__ import annotations

import importlib.metadata
import json
import os
from hashlib import sha256
from pathlib import Path

from secure_bloom.kernels.interface import MANIFEST, PREFIX, sources_digest

TOOLS = "numba", "llvmlite"

#: Machine code that runs on every x86-64 CPU, to ask it what it can do: llvmlite assembles none.
BASELINE = "x86-64"
ASK_CPU = {
    "cpuid": bytes.fromhex(  # (leaf, subleaf, address of four uint32: EAX, EBX, ECX, EDX)
        "53"        # push rbx, which belongs to the caller
        "4989d0"    # mov r8, rdx: the address
        "89f8"      # mov eax, edi: the leaf
        "89f1"      # mov ecx, esi: the subleaf
        "0fa2"      # cpuid
        "418900"    # mov [r8], eax
        "41895804"  # mov [r8 + 4], ebx
        "41894808"  # mov [r8 + 8], ecx
        "4189500c"  # mov [r8 + 12], edx
        "31c0"      # xor eax, eax
        "5b"        # pop rbx
        "c3"),      # ret
    "xgetbv": bytes.fromhex(  # () -> XCR0: the registers that the operating system saves
        "31c9"      # xor ecx, ecx
        "0f01d0"    # xgetbv
        "48c1e220"  # shl rdx, 32
        "4809d0"    # or rax, rdx
        "c3"),      # ret
}


def is_current(folder: Path) -> bool:
    """Whether a folder holds what these sources build."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        return (manifest["sources"], manifest["builder"]) == (sources_digest(), _builder()) and all(
            sha256((folder / f"{name}.so").read_bytes()).hexdigest() == digest
            for name, digest in manifest["libraries"].items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def build(folder: Path) -> None:
    """Compile the kernels for every CPU. The manifest comes last: without it, nothing is loaded."""
    from build_kernels.emitting import TARGETS, emit
    from build_kernels.linking import library_of, link
    from build_kernels.lowering import lower
    folder.mkdir(parents=True, exist_ok=True)
    texts = lower().values()
    libraries = {name: link(emit(texts, target, PREFIX), PREFIX)
                 for name, target in TARGETS.items()}
    libraries[BASELINE] = library_of({f"{PREFIX}{name}": code for name, code in ASK_CPU.items()})
    for name, data in libraries.items():
        _write(folder / f"{name}.so", data)
    manifest = {"sources": sources_digest(), "builder": _builder(),
                "tools": {name: importlib.metadata.version(name) for name in TOOLS},
                "libraries": {name: sha256(data).hexdigest() for name, data in libraries.items()}}
    _write(folder / MANIFEST, json.dumps(manifest, indent=1).encode())


def _builder() -> str:
    """Return a digest of this package."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _write(path: Path, data: bytes) -> None:
    """Replace a file; a process that has loaded the old one keeps it."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_bytes(data)
    os.replace(new, path)
