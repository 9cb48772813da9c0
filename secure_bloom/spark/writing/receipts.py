"""Receipts: what a write has committed, passed from the process that commits to the caller.

Spark commits in a Python process of its own on the driver, and passes nothing back. So that process
leaves the summary in a file, which only the same user of the driver's machine can read: it names
columns, and encrypted footers do not show these. The caller knows the name of the file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from secure_bloom.errors import OptionError
from secure_bloom.spark.options.options import FORMAT, RECEIPT
from secure_bloom.storage.summary import CommitSummary

_KEPT_SECONDS = 24 * 3600  # the caller takes a receipt at once, unless it has died
_SUMMARY = "summary"
_log = logging.getLogger("secure_bloom.spark")


def leave(receipt: str, summary: CommitSummary) -> None:
    """Leave a receipt for the caller. The rows are committed, so a failure is only a warning."""
    try:
        folder = _folder()
        _remove_old(folder)
        with open(folder / _checked(receipt), "x", opener=_private) as file:
            json.dump(summary.to_dict(), file)
    except OSError as error:
        _log.warning("the rows are committed, but the caller cannot be told what was written: %s",
                     error)


def take(receipt: str) -> str | None:
    """Return a receipt as JSON, and remove it; None if it is not on this machine."""
    with contextlib.suppress(OSError):
        path = _folder() / _checked(receipt)
        text = path.read_text()
        path.unlink()
        return text
    return None


def receipt_schema(receipt: str) -> StructType:
    """Return a schema whose metadata has the receipt, which Spark passes to a remote caller."""
    text = take(receipt)
    return StructType([] if text is None else [
        StructField(_SUMMARY, StringType(), metadata={_SUMMARY: text})])


def received(spark: SparkSession, receipt: str) -> CommitSummary | None:
    """Return what a write has committed; None if its driver could not say it."""
    is_local = hasattr(spark, "_jsparkSession")  # not Spark Connect, whose driver is elsewhere
    try:
        text = take(receipt) if is_local else None
        if text is None:  # the driver's processes may use another folder for temporary files
            fields = spark.read.format(FORMAT).option(RECEIPT, receipt).load().schema.fields
            text = fields[0].metadata[_SUMMARY]
        return CommitSummary(**json.loads(text))
    except Exception as error:  # whatever Spark raises: the write did not fail
        _log.warning("the rows are committed, but Spark's driver could not say what was written: "
                     "%r", error)
        return None


def _checked(receipt: str) -> str:
    if not re.fullmatch("[0-9a-f]{32}", receipt):
        raise OptionError("it is set by secure_bloom.spark.write: remove it", option=RECEIPT)
    return receipt


def _folder() -> Path:
    """Return the folder of this user. Raises PermissionError if others could read it."""
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    folder = Path(tempfile.gettempdir()) / f"secure_bloom-receipts-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or (
            hasattr(os, "geteuid") and (found.st_uid != user or found.st_mode & 0o077)):
        raise PermissionError(f"{folder} must be a folder that only this user can read")
    return folder


def _remove_old(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # its caller has just taken it
            if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
