"""What the builder makes: whole files with their sidecars, from a fixed seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

# Keys, key names and prefix of apache/parquet-testing.
MASTER_KEYS = {"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}
AAD_PREFIX = b"tester"


class Seeded:
    """Bytes that look random and are the same on every run: SHA-256 of name and counter.

    For test vectors only: nonces and keys made of it are known to everybody.
    """

    def __init__(self, name: str):
        self._name = name.encode()
        self._count = 0

    def bytes(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        out = b""
        while len(out) < size:
            out += hashlib.sha256(b"%s/%d" % (self._name, self._count)).digest()
            self._count += 1
        return out[:size]


@dataclass(frozen=True)
class FileKeys:
    """The keys of a file, as the ``input`` of its sidecar names them."""

    footer_key: bytes | None = None
    column_keys: dict[str, bytes] = field(default_factory=dict)
    master_keys: dict[str, bytes] = field(default_factory=dict)
    aad_prefix: bytes | None = None

    def to_json(self) -> dict:
        """The fields that are there, bytes as hex."""
        out: dict = {}
        if self.footer_key is not None:
            out["footer_key"] = self.footer_key.hex()
        for name in ("column_keys", "master_keys"):
            if getattr(self, name):
                out[name] = {key: value.hex() for key, value in getattr(self, name).items()}
        if self.aad_prefix is not None:
            out["aad_prefix"] = self.aad_prefix.hex()
        return out


@dataclass(frozen=True)
class Filter:
    """A Bloom filter that a reader finds: one entry of ``output.filters``."""

    row_group: int
    column: str
    encrypted: bool
    bitset: bytes
    probes: list[tuple[bytes, str, bool]]  # plain encoding, in words, answer

    def to_json(self) -> dict:
        """The entry in a sidecar."""
        return {"row_group": self.row_group, "column": self.column, "encrypted": self.encrypted,
                "num_bytes": len(self.bitset), "sha256": hashlib.sha256(self.bitset).hexdigest(),
                "probes": [{"plain": plain.hex(), "value": value, "answer": answer}
                           for plain, value, answer in self.probes]}


@dataclass(frozen=True)
class FileVector:
    """A file and what its sidecar says, but for ``checked_by``, which the builder fills in.

    ``filters`` are those that can still be read; ``at`` stands with a refusal only.
    """

    name: str
    data: bytes
    origin: str
    keys: FileKeys
    filters: list[Filter]
    outcome: str = "read"
    at: str | None = None
    fault: str | None = None
    comment: str | None = None

    def to_json(self) -> dict:
        """The sidecar."""
        output: dict = {} if self.at is None else {"at": self.at}
        output["filters"] = [filter_.to_json() for filter_ in self.filters]
        case = {"name": self.name, "operation": "read", "origin": self.origin, "checked_by": [],
                "comment": self.comment, "fault": self.fault,
                "input": {"file": f"{self.name}.parquet", **self.keys.to_json()},
                "outcome": self.outcome, "output": output}
        return {name: value for name, value in case.items() if value is not None}
