"""Which process a job belongs to, so that others can tell at once that it has died.

Only processes of the same boot and the same namespace of process ids can be told, on Linux.
"""

from __future__ import annotations

import json
import os

from secure_bloom.json_text import decode_json

_BOOT, _NAMESPACE = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"


def this_process() -> bytes:
    """Return what identifies this process; empty where the system does not tell."""
    try:
        return json.dumps({**_system(), "pid": os.getpid(), "began": _began(os.getpid())}).encode()
    except OSError:
        return b""


def is_dead(process: bytes) -> bool:
    """Whether it is certain that a process has ended."""
    try:
        known = decode_json(process)
        if {key: known[key] for key in ("boot", "namespace")} != _system():
            return False
        pid, began = int(known["pid"]), known["began"]
    except (ValueError, TypeError, KeyError, OSError, OverflowError):
        return False
    try:
        return _began(pid) != began
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _system() -> dict[str, str]:
    with open(_BOOT) as file:
        return {"boot": file.read().strip(), "namespace": os.readlink(_NAMESPACE)}


def _began(pid: int) -> str:
    """Return when a process began, in ticks since the boot. Process ids are reused."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]
