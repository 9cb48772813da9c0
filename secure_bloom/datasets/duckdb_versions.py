"""A warning about versions of DuckDB that return wrong results from data sets of pyarrow."""

from __future__ import annotations

import re
import sys

from secure_bloom.display import warn

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
