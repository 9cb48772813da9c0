"""Files by arrow-rs that leak: it writes the filters of encrypted columns in plaintext.

Its keys and nonces are random, so the builder keeps the bytes that are here.
``python -m vectors.builder.writers_rust`` lets arrow-rs write them again, which needs Cargo.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from tests.peers.arrow_rs import ArrowRs, version
from tests.peers.keys import Keys
from vectors.builder.columns import pick, table
from vectors.builder.vector import AAD_PREFIX, MASTER_KEYS, FileKeys, FileVector
from vectors.builder.vectorize import leaking

FILES = Path(__file__).parents[1] / "files"
COLUMNS = pick("id", "name", "day")
ROWS, GROUP_ROWS = table(COLUMNS, range(11)), 6
MODES = {
    "arrow-rs-columns": Keys(MASTER_KEYS["kf"],
                             {"id": MASTER_KEYS["kc1"], "name": MASTER_KEYS["kc2"]}),
    "arrow-rs-signed": Keys(MASTER_KEYS["kf"], aad_prefix=AAD_PREFIX, plaintext_footer=True),
}
_FAULT = "the filters of encrypted columns are not encrypted"


def rust() -> Iterator[FileVector]:
    """The vectors of the files that are here."""
    for name in MODES:
        sidecar = json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))
        yield vector(name, (FILES / f"{name}.parquet").read_bytes(), sidecar["origin"])


def vector(name: str, data: bytes, origin: str) -> FileVector:
    """The vector of a file that arrow-rs has written."""
    how = MODES[name]
    keys = FileKeys(how.footer_key, dict(how.column_keys))  # the file stores its AAD prefix
    return leaking(name, data, origin, keys, ROWS, COLUMNS, _FAULT)


def written() -> Iterator[FileVector]:
    """The vectors of files that arrow-rs writes now."""
    with TemporaryDirectory() as folder, ArrowRs() as arrow_rs:
        plain = Path(folder) / "plain.parquet"
        pq.write_table(ROWS, plain, store_schema=False, compression="none")
        for name, how in MODES.items():
            path = Path(folder) / f"{name}.parquet"
            arrow_rs.copy(plain, path, to_keys=how, bloom=[column.path for column in COLUMNS],
                          row_group_rows=GROUP_ROWS)
            yield vector(name, path.read_bytes(), f"arrow-rs {version()}")


def main() -> None:
    """Write the files again, and sidecars in which nobody has checked them."""
    for new in written():
        (FILES / f"{new.name}.parquet").write_bytes(new.data)
        (FILES / f"{new.name}.json").write_text(json.dumps(new.to_json()), encoding="utf-8")
    print("now run: make vectors")


if __name__ == "__main__":
    main()
