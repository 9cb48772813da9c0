"""What a manifest records of a segment: its files, and where a reader begins."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from secure_bloom.errors import FormatError

SUFFIX = ".seg"
PART_SUFFIX = ".part"

_BAD_INFO = "the manifest describes a segment that cannot be understood"
_ID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Part:
    """A file with some of the first bytes of a segment: its id, and its size in bytes."""

    id: str
    size: int

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.id + PART_SUFFIX


@dataclass(frozen=True)
class SegmentInfo:
    """What the manifest records of a segment.

    ``tail`` is the offset from which a reader reads to open it; the other numbers are totals.
    ``parts`` are the files that come before its own one, which is named after ``file``. That is
    another id than the segment's if a part of it was written again.
    """

    id: str
    tail: int
    size: int
    pairs: int
    files: int
    row_groups: int
    parts: tuple[Part, ...] = ()
    file: str = ""

    @property
    def name(self) -> str:
        """Name of the file that has the end of the segment."""
        return (self.file or self.id) + SUFFIX

    @property
    def file_names(self) -> list[str]:
        """Names of all its files."""
        return [*(part.name for part in self.parts), self.name]

    @property
    def parts_size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the fields in the types of JSON."""
        return {name: value for name, value in asdict(self).items() if value not in ((), "")}

    @classmethod
    def from_json(cls, fields: Any) -> SegmentInfo:
        """Parse :meth:`to_json`. Unknown fields are an error: they might change the meaning."""
        try:
            parts = tuple(Part(**part) for part in fields.get("parts", ()))
            found = cls(**{**fields, "parts": parts})
            files = [fields.get("file", found.id), *(part.id for part in parts)]
            are_ids = all(map(_ID.fullmatch, (found.id, *files)))  # they become names of files
        except (TypeError, AttributeError):
            raise FormatError(_BAD_INFO) from None
        numbers = (found.tail, found.size, found.pairs, found.files, found.row_groups,
                   *(part.size for part in parts))
        if not are_ids or len({*files}) < len(files) \
                or any(type(one) is not int or not 0 <= one < 2**63 for one in numbers) \
                or not found.parts_size <= found.tail <= found.size:
            raise FormatError(_BAD_INFO)
        return found
