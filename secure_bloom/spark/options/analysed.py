"""What :func:`secure_bloom.spark.write` knows about its DataFrame, as an option of the write.

Spark's optimizer replaces expressions, and drops the metadata of some columns when it does. So the
schema that arrives at the writer may lack marks that the DataFrame's own schema has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from secure_bloom.errors import OptionError
from secure_bloom.spark.options.columns import OUR_METADATA, Path
from secure_bloom.spark.options.options import ANALYSED, Options


@dataclass(frozen=True)
class Analysed:
    """What is known about a DataFrame and its write.

    Attributes
    ----------
    metadata : mapping of tuple of str to mapping
        Our entries in the metadata of fields, by path in the Parquet schema.
    is_new : bool
        Whether the folder must not have files yet.
    receipt : str or None
        Name of the receipt that the caller waits for, see :mod:`.spark.writing.receipts`.
    """

    metadata: Mapping[Path, Mapping[str, Any]] = field(default_factory=dict)
    is_new: bool = False
    receipt: str | None = None

    def to_json(self) -> str:
        """Return it as the value of the option."""
        ours = [[path, {name: value for name, value in entries.items()
                        if name.startswith(OUR_METADATA)}]
                for path, entries in self.metadata.items()]
        return json.dumps({"is_new": self.is_new, "receipt": self.receipt,
                           "metadata": [[path, entries] for path, entries in ours if entries]})

    def with_metadata(self, metadata: Mapping[Path, Mapping[str, Any]]) \
            -> dict[Path, Mapping[str, Any]]:
        """Return the metadata of the schema that arrives at the writer, with what it lacks."""
        found = dict(metadata)
        for path, entries in self.metadata.items():
            found[path] = {**found.get(path, {}), **entries}
        return found


def parse_analysed(options: Options) -> Analysed:
    """Parse the option; without it, nothing is known."""
    if ANALYSED not in options:
        return Analysed()
    try:
        found = json.loads(options[ANALYSED])
        return Analysed({tuple(path): dict(entries) for path, entries in found["metadata"]},
                        bool(found["is_new"]), found["receipt"])
    except (ValueError, TypeError, KeyError):
        raise OptionError("it is set by secure_bloom.spark.write: use that function",
                          option=ANALYSED) from None
