"""The rows that ``find`` has found: counted by place, and written in a format."""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import asdict
from typing import Any

import click
import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.cli.row_formats import Sink, formula_columns, json_rows, write_rows
from secure_bloom.cli.shared import echo, print_json
from secure_bloom.datasets.search import FailedFile, Search
from secure_bloom.datasets.searched_rows import SearchedRows
from secure_bloom.display import is_terminal, listed
from secure_bloom.pruning.predicates import find_field
from secure_bloom.sbbf.parsing import parse_values
from secure_bloom.storage.files import check_absent, open_output, resolve

ROWS, PLACES = "rows", "places"  #: what is written
_PLACES_SCHEMA = pa.schema([pa.field("file", pa.string()), pa.field("row_group", pa.int32()),
                            pa.field("rows", pa.int64())])


def values_for(texts: list[str], column: str, schema: pa.Schema) -> list[Any]:
    """Parse values of a column."""
    return parse_values(texts, find_field(schema, column).type)


class FoundRows:
    """The rows of some values; they are found while they are written.

    ``num_rows`` is the number of rows so far. The values are parsed as values of the column.
    To be closed, so that an interrupted search ends its threads in the thread that started them.
    """

    def __init__(self, search: Search, failed: list[FailedFile], texts: list[str]):
        self._search, self._failed = search, failed
        values = values_for(texts, search.column, search.schema) if search.is_known else []
        self._num_values = len(set(texts))
        self._rows = SearchedRows(search, values)
        self._found = self._rows.batches()
        self._batches = self._counted(self._found)
        self._places: list[dict[str, Any]] = []
        self.num_rows = 0

    def close(self) -> None:
        """End the search."""
        self._batches.close()
        self._found.close()

    def finish(self) -> FoundRows:
        """Find the rows that have not been written."""
        deque(self._batches, maxlen=0)
        return self

    def print(self, what: str, form: str) -> None:
        """Print the rows, or their places."""
        self._write(what, form, _StandardOutput())
        if form == "table" and not self.num_rows and not self._failed:
            echo("no rows found")

    def write_file(self, what: str, form: str, path: str, *, overwrite: bool) -> None:
        """Write the rows, or their places, to a file that appears when it is complete.

        No file is written if no file could be searched. Raises UsageError if the path is that of a
        searched file.
        """
        if not self._search.is_known:
            return
        filesystem, where = resolve(path)
        self._check_not_searched(filesystem, where, path)
        with open_output(where, filesystem, mode=0o600) as output:
            self._write(what, form, output)
            output.commit(None if overwrite else lambda: check_absent(filesystem, where))
        if what == ROWS and self.num_rows and any(file.is_encrypted for file in self._search.files):
            echo(f"secure-bloom: note: {path} is not encrypted, but rows in it come from encrypted "
                 "files: protect it, and delete it when it is no longer needed", err=True)

    def print_json(self, *, with_rows: bool) -> None:
        """Print what was searched and found as one JSON object."""
        if not with_rows:
            self.finish()
            print_json(self._report())
            return
        comma = ""
        click.echo('{\n  "found": [', nl=False)
        for batch in self._batches:
            for row in json_rows(batch):
                click.echo(f"{comma}\n    {row}", nl=False)
                comma = ","
        click.echo("\n  ]," if comma else "],")
        click.echo(json.dumps(self._report(), indent=2)[2:])

    def _check_not_searched(self, filesystem: pa_fs.FileSystem, where: str, path: str) -> None:
        searched, paths = self._search.access.filesystem, self._search.paths
        if filesystem.type_name == searched.type_name == "local":
            where, paths = os.path.realpath(where), [os.path.realpath(one) for one in paths]
        elif not filesystem.equals(searched):
            return
        if where in paths:
            raise click.UsageError(f"{path} is one of the searched files, and the rows would "
                                   "replace its data; specify another output file")

    def _write(self, what: str, form: str, sink: Sink) -> None:
        if what == PLACES:
            self.finish()
            batch = pa.RecordBatch.from_pylist(self._places, _PLACES_SCHEMA)
            write_rows(form, iter([batch]), _PLACES_SCHEMA, sink)
            return
        formulas: set[str] = set()
        batches = _noting_formulas(self._batches, formulas) if form == "csv" else self._batches
        write_rows(form, batches, self._rows.schema, sink)
        if formulas:
            echo(f"secure-bloom: note: text in {listed(sorted(formulas))} begins like a formula "
                 "(=, +, -, @ or tab): in a spreadsheet, import these columns as text", err=True)

    def _counted(self, batches: Iterator[pa.RecordBatch]) \
            -> Generator[pa.RecordBatch, None, None]:
        for batch in batches:
            place = {"file": batch.column(0)[0].as_py(), "row_group": batch.column(1)[0].as_py()}
            if not self._places or place.items() - self._places[-1].items():
                self._places.append({**place, "rows": 0})
            self._places[-1]["rows"] += batch.num_rows
            self.num_rows += batch.num_rows
            yield batch

    def _report(self) -> dict[str, Any]:
        searched = self._rows.report
        return {
            "column": self._search.column,
            "values": self._num_values,
            "rows": self.num_rows,
            "complete": not self._failed,
            "files": {"total": self._search.num_files, "failed": len(self._failed),
                      **asdict(searched.files)},
            "row_groups": asdict(searched.row_groups),
            "bytes": asdict(searched.bytes),
            "places": self._places,
            "failed": [{"file": one.file, "error": str(one.error)} for one in self._failed],
        }


def _noting_formulas(batches: Iterator[pa.RecordBatch], found: set[str]) \
        -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found.update(formula_columns(batch))
        yield batch


class _StandardOutput:
    """Standard output; on a terminal, nothing in the rows can control it."""

    def write(self, data: bytes) -> None:
        """Print bytes."""
        if is_terminal(sys.stdout):
            echo(data.decode(errors="replace"), nl=False)
        else:
            click.echo(data, nl=False)
