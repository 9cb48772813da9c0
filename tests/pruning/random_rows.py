"""Random rows of all types: as a table, and as dicts for the reference."""

import random

import pyarrow as pa

from tests.pruning.row_domains import Domain
from tests.reference import filter_holds


class Rows:
    """Random rows, with their number in ``row``.

    Neighbours resemble each other, so that statistics and Bloom filters say something.

    Parameters
    ----------
    domains : dict
        By the name of the column.
    structs : dict
        Column -> the domains of its fields; some structs are null.
    group : int
        So many rows have few values in common.
    """

    def __init__(self, draw: random.Random, domains: dict[str, Domain],
                 structs: dict[str, dict[str, Domain]], count: int, group: int):
        self._draw, self._group = draw, group
        self.rows = [{"row": number} for number in range(count)]
        columns = {"row": list(range(count))}
        columns |= {name: self._column(name, domain) for name, domain in domains.items()}
        for struct, fields in structs.items():
            arrays = [self._column(f"{struct}.{name}", domain) for name, domain in fields.items()]
            is_null = [draw.random() < 0.1 for _ in self.rows]
            columns[struct] = pa.StructArray.from_arrays(arrays, list(fields),
                                                         mask=pa.array(is_null))
            for row, no_struct in zip(self.rows, is_null, strict=True):
                if no_struct:
                    row.update(dict.fromkeys((f"{struct}.{name}" for name in fields), None))
        columns["list"] = pa.array([["a", str(row)] if row % 3 else None for row in range(count)],
                                   pa.list_(pa.string()))  # is only carried along
        self.table = pa.table(columns)

    def _column(self, name: str, domain: Domain) -> pa.Array:
        indices = []
        for number, row in enumerate(self.rows):
            if number % self._group == 0:
                few = self._draw.sample(range(len(domain.values)), self._draw.randint(1, 2))
                nulls = self._draw.choice([0, 0.2, 0.2, 1])
            indices.append(None if self._draw.random() < nulls else self._draw.choice(few))
            row[name] = None if indices[-1] is None else domain.values[indices[-1]]
        return domain.stored.dictionary_encode().take(pa.array(indices, pa.int64())) \
            if pa.types.is_dictionary(domain.stored.type) else _take(domain.stored, indices)

    def found(self, filters) -> list[int]:
        """Return the rows that a filter finds."""
        return [row["row"] for row in self.rows if filter_holds(row, filters)]


def _take(stored: pa.Array, indices: list[int | None]) -> pa.Array:
    """By slices, for Arrow takes no views."""
    null = pa.nulls(1, stored.type)
    return pa.concat_arrays([null if i is None else stored.slice(i, 1) for i in indices])
