"""Which combinations of versions are tried."""

from __future__ import annotations

from dataclasses import dataclass

#: lower bounds of pyproject.toml, as the first versions that exist; a test compares them
OLDEST = {"click": "8.2.0", "cryptography": "47.0.0", "numba": "0.62.0", "numpy": "2.0.0",
          "pandas": "2.2.2", "pyarrow": "26.0.1", "pyspark": "4.0.0", "thrift": "0.24.0",
          "xxhash": "3.4.1"}


@dataclass(frozen=True)
class Cell:
    """A combination of versions.

    Attributes
    ----------
    name : str
    python : str
    packages : dict of str to str
        Requirements by package; the others are the newest ones.
    """

    name: str
    python: str
    packages: dict[str, str]


CELLS = [
    Cell("oldest", "3.11", {name: f"=={version}" for name, version in OLDEST.items()}),
    Cell("python3.11", "3.11", {"pyspark": "==4.1.*"}),
    Cell("python3.12", "3.12", {"pyspark": "==4.2.*"}),
    Cell("python3.13", "3.13", {"pyspark": "==4.3.*"}),
    Cell("python3.14", "3.14", {}),
]
