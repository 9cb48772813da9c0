"""No byte of erased rows is left, and nobody gets a byte of other rows."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import secure_bloom
from secure_bloom import ParquetFile, attach, strip
from secure_bloom.cli.found_rows import ROWS, FoundRows
from secure_bloom.cli.report import render_erasure
from secure_bloom.datasets.search import Search
from secure_bloom.erasing.page import render_page
from secure_bloom.index import Index
from secure_bloom.keys import InMemoryKms
from tests.index.helpers import age
from tests.memory import buffers_of
from tests.modes import MASTER_KEYS
from tests.soak.check import Case, Check, in_memory
from tests.soak.checks.leftovers.searching import check_index, stored
from tests.soak.checks.leftovers.tables import Lake

_KMS = InMemoryKms(MASTER_KEYS)


def _try(case: Case) -> None:
    """Hand over the rows of some persons and erase them; search everything that is there then."""
    with in_memory(case) as folder:
        lake = Lake.write(case, folder / "lake")
        try:
            _play(case, lake, folder / "person.parquet")
        except Exception as error:
            error.add_note(f"writers: {lake.writers}; columns: " + ", ".join(
                f"{name} {one.type} {one.nesting} {one.by_dictionary}"
                for name, one in lake.columns.items()))
            raise
    case.tried += 1
    case.counts += dict.fromkeys(lake.writers, 1)  # type: ignore[arg-type]


def _play(case: Case, lake: Lake, person: Path) -> None:
    unordered = {token for one in lake.columns.values() for token in one.tokens
                 if one.by_dictionary != "ordered"}
    for number, (writer, rows) in enumerate(zip(lake.writers, lake.of_files, strict=True)):
        if writer == "ours":
            _search(lake.folder / f"{number}.parquet", unordered - lake.tokens(rows))
    has_index = set(lake.writers) == {"ours"}
    if has_index:
        age(lake.folder)
        secure_bloom.index.build(lake.folder, "ssn", _KMS)
    there = sorted({row["ssn"] for row in lake.rows})
    numbers = case.random.sample(there, min(len(there), case.random.choice([1, 1, 2, 5])))
    gone = [row for row in lake.rows if row["ssn"] in numbers]
    left = [row for row in lake.rows if row["ssn"] not in numbers]
    values = [lake.columns["ssn"].values[number].as_py() for number in numbers]

    search = Search(str(lake.folder), "ssn", None, _KMS)
    with contextlib.redirect_stderr(io.StringIO()), \
            contextlib.closing(FoundRows(search, [], list(map(_text, values)))) as found:
        found.write_file(ROWS, "parquet", str(person), overwrite=False)
    others = lake.tokens(lake.rows) | {token for one in lake.columns.values()
                                       for token in one.tokens}
    _search(person, others - lake.tokens(gone))

    scales = {token for one in lake.columns.values() for token in one.tokens
              if one.by_dictionary == "ordered"}
    for rows, kept in ((secure_bloom.find(lake.folder, "ssn", values, _KMS), set()),
                       (secure_bloom.read_table(lake.folder, _KMS,
                                                filters=[("ssn", "in", values)]), scales)):
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            for content in (some for chunk in column.chunks for some in buffers_of(chunk)):
                _check(f"memory of {name}", content, others - lake.tokens(gone) - kept)

    result = secure_bloom.erase(lake.folder, "ssn", values, _KMS, max_share=1)
    forbidden = lake.tokens(gone) - lake.tokens(left) - lake.kept_tokens() - lake.noted
    assert not lake.noted or any("metadata" in one for one in result.out_of_reach), \
        "the report does not have values of other rows in metadata"
    report = json.dumps(result.to_dict()) + render_erasure(result) + render_page(result) \
        + repr(result)
    assert not any(token in report.encode() for token in lake.tokens(lake.rows)), "the report"
    case.counts["dictionaries"] += result.dictionaries
    _search_all(lake, forbidden, has_index)
    assert result.ok and result.rows_removed == len(gone)

    if case.random.random() < 0.3:  # what is written later has no more
        for path in lake.folder.glob("*.parquet"):
            attach(path, ["ssn"], _KMS, replace=True)
            if case.random.random() < 0.5:
                strip(path, _KMS)
        if has_index:
            age(lake.folder)
            index = Index.open(lake.folder, _KMS)
            index.update()
            index.compact()
            index.purge()
        _search_all(lake, forbidden, has_index)


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _search_all(lake: Lake, forbidden: set[bytes], has_index: bool) -> None:
    for path in lake.folder.rglob("*"):
        if path.suffix == ".parquet":
            _search(path, forbidden)
        elif path.is_file():
            _check(str(path), path.read_bytes(), forbidden)
    if has_index:
        check_index(lake.folder, "ssn", _KMS)


def _search(path: Path, forbidden: set[bytes]) -> None:
    for place, content in stored(path, _KMS):
        _check(f"{path.name}: {place}", content, forbidden)
    _check(path.name, path.read_bytes(), forbidden)
    rows: Any = ParquetFile(path, _KMS).read()
    decoded = json.dumps(rows.to_pylist(), default=lambda value: value.decode(errors="replace")
                         if isinstance(value, bytes) else str(value)).encode()
    _check(f"rows of {path.name}", decoded, forbidden)


def _check(place: str, content: bytes, forbidden: set[bytes]) -> None:
    found = sum(token in content for token in forbidden)
    assert not found, f"{place} has {found} values of other rows"


CHECK = Check("leftovers", "no byte of erased rows is left, and what is handed over has no byte of "
              "other rows", "games", 20_000, _try)
