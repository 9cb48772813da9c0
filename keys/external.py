"""Key material in a file beside the Parquet file ("external storage").

``<folder>/_KEY_MATERIAL_FOR_<file>.json`` holds one JSON object: the name of each key of the file,
``footerKey``, ``columnKey0``, ..., and its key material as text. So master keys can be rotated
without touching the Parquet file. Whoever moves a file must move both.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping

import pyarrow.fs as pa_fs

from secure_bloom.errors import KeyNotFoundError, KeyRetrievalError
from secure_bloom.files import write_file

FOOTER_KEY = "footerKey"
_MAX_SIZE = 64 * 1024 * 1024  # of one file; a key takes some 400 bytes


def material_path(path: str) -> str:
    """Path of the file with the key material of a Parquet file."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f"_KEY_MATERIAL_FOR_{name}.json")


def column_key_name(number: int) -> str:
    """Name of the key of a column."""
    return f"columnKey{number}"


def read_material(filesystem: pa_fs.FileSystem, path: str) -> dict[str, str]:
    """Key material by name, for the Parquet file at ``path``.

    Raises
    ------
    KeyNotFoundError
        If the file with the key material is missing.
    KeyRetrievalError
        If it is no such JSON.
    """
    where = material_path(path)
    try:
        with filesystem.open_input_file(where) as file:
            if file.size() > _MAX_SIZE:
                raise KeyRetrievalError("the key material is larger than any can be", file=where)
            return _parse(file.read(), where)
    except FileNotFoundError:
        raise KeyNotFoundError(f"its key material is missing: {where} must stand beside it",
                               file=path) from None


def write_material(filesystem: pa_fs.FileSystem, path: str, materials: Mapping[str, str]) -> None:
    """Write or replace, in one step, the key material of the Parquet file at ``path``."""
    content = json.dumps(dict(materials), separators=(",", ":"))
    write_file(filesystem, material_path(path), content.encode())


def check_new(filesystem: pa_fs.FileSystem, path: str) -> None:
    """Raise FileExistsError where a Parquet file would be replaced.

    Its key material cannot be replaced in the same step, and without it the file is lost.
    """
    for name in (path, material_path(path)):
        if filesystem.get_file_info(name).type != pa_fs.FileType.NotFound:
            raise FileExistsError(f"{name} exists; a file whose key material stands beside it "
                                  "cannot be replaced in one step: remove both, or take another "
                                  "name")


def _parse(data: bytes, where: str) -> dict[str, str]:
    try:
        materials = json.loads(data)
    except (ValueError, RecursionError):
        materials = None
    if not isinstance(materials, dict) or not all(map(_is_text, materials.values())):
        raise KeyRetrievalError("this is no key material: it is no JSON object of texts",
                                file=where)
    return materials


def _is_text(value) -> bool:
    return isinstance(value, str)
