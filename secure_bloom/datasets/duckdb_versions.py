"""What DuckDB would read wrong: a warning about old versions, and types that it must not get."""

from __future__ import annotations

import re
import sys

import pyarrow as pa

from secure_bloom.arrow.leaves import contains, has_dictionary_in_list, is_list_view
from secure_bloom.display import warn
from secure_bloom.errors import UnsupportedError

_has_warned = False


def warn_of_old_duckdb() -> None:
    """Warn, once in a process, if a version of DuckDB is imported that returns wrong results."""
    global _has_warned
    version = str(getattr(sys.modules.get("duckdb"), "__version__", ""))
    major = re.match(r"(\d+)\.", version)
    if _has_warned or major is None or int(major[1]) >= 2:
        return
    _has_warned = True
    warn(UserWarning(f"DuckDB {version} reads decimals of pyarrow data sets wrong, and loses NaN "
                     "in filters; use DuckDB 2.0 or newer"))


def check_for_duckdb(schema: pa.Schema) -> None:
    """Raise UnsupportedError if DuckDB is imported, and would read a column wrong or break on it.

    These are dictionaries in lists, which data sets have with list views only.
    """
    for field in schema if "duckdb" in sys.modules else ():
        if has_dictionary_in_list(field.type) and contains(field.type, is_list_view):
            raise UnsupportedError("DuckDB reads dictionaries in lists wrong, and in types with "
                                   "list views values cannot replace them; leave the column out",
                                   column=field.name)
