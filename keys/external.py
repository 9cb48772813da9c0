"""Key material in a separate file next to the Parquet file ("external storage").

``<folder>/_KEY_MATERIAL_FOR_<file>.json`` holds one JSON object. It maps the name of each key of
the file, ``footerKey``, ``columnKey0``, ..., to its key material as text. So master keys can be
rotated without changing the Parquet file. The two files must always be moved together.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator, Mapping

import pyarrow.fs as pa_fs

from secure_bloom.errors import (
    FormatError,
    KeyNotFoundError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.json_text import decode_once
from secure_bloom.storage.files import (
    FileTarget,
    Output,
    check_absent,
    create_file,
    is_path,
    resolve,
)
from secure_bloom.storage.rewrite import Rewrite
from secure_bloom.storage.small_files import MAX_RECORD, check_size, parse_json, read_small
from secure_bloom.storage.table_names import material_path

FOOTER_KEY = "footerKey"


def read_material(filesystem: pa_fs.FileSystem, path: str) -> dict[str, str]:
    """Read the key material, by name, of the Parquet file at ``path``.

    Raises KeyNotFoundError if the key material file is missing; KeyRetrievalError if it is not
    a regular file with valid JSON of this form; ChangedMeanwhileError if it is replaced during each
    of ten attempts.
    """
    where = material_path(path)
    try:
        with _checked(where):
            return _parsed(read_small(filesystem, where, MAX_RECORD), where)
    except FileNotFoundError:
        raise _missing(path) from None


def create_material(filesystem: pa_fs.FileSystem, path: str, materials: Mapping[str, str]) -> None:
    """Write the key material of a new Parquet file at ``path``.

    Raises FileExistsError if the key material file already exists.
    """
    try:
        create_file(filesystem, material_path(path), _to_bytes(materials))
    except FileExistsError:
        raise _exists(material_path(path)) from None


def publish(output: Output, filesystem: pa_fs.FileSystem, path: str,
            materials: Mapping[str, str]) -> None:
    """Make a new Parquet file at ``path`` visible, after the key material that it needs.

    Raises FileExistsError if one of the two already exists; then neither of them is replaced.
    """
    create_material(filesystem, path, materials)
    try:
        output.commit(lambda: check_new_file(filesystem, path))
    except BaseException as error:
        _remove_material(filesystem, path, error)
        raise


def _remove_material(filesystem: pa_fs.FileSystem, path: str, error: BaseException) -> None:
    """Remove the key material of this file, unless the file nevertheless became visible."""
    is_others = isinstance(error, FileExistsError)
    with contextlib.suppress(OSError):
        if is_others or filesystem.get_file_info(path).type == pa_fs.FileType.NotFound:
            filesystem.delete_file(material_path(path))


class MaterialFile(Rewrite):
    """The key material of the Parquet file at ``path``, to be replaced. A context manager.

    ``folder`` is that of :class:`.Rewrite`, or the path of the file.

    Raises KeyNotFoundError if the key material file is missing.
    """

    def __init__(self, filesystem: pa_fs.FileSystem, path: str, folder: str):
        self._where = material_path(path)
        try:
            with _checked(self._where):
                super().__init__(filesystem, self._where,
                                 folder=None if folder == path else folder)
        except FileNotFoundError:
            raise _missing(path) from None

    def read(self) -> dict[str, str]:
        """Read the key material by name; see :func:`read_material`."""
        with _checked(self._where):
            check_size(self.source.size, MAX_RECORD, self._where)
            return _parsed(bytes(self.source.read_at(self.source.size, 0)), self._where)

    def replace(self, materials: Mapping[str, str]) -> None:
        """Replace the whole file atomically; see :meth:`Rewrite.replace_tail`."""
        self.replace_tail(0, [_to_bytes(materials)])


def place_of_new(path: FileTarget, filesystem: pa_fs.FileSystem | None) \
        -> tuple[pa_fs.FileSystem, str]:
    """Return filesystem and path of a new Parquet file with external key material.

    Raises TypeError if it has no path. Raises FileExistsError if the file, or its key material,
    would be replaced: the two cannot be replaced atomically, and one is useless without the other.
    Raises UnsupportedError if the name is too long to derive the name of the key material file.
    """
    if not is_path(path):
        raise TypeError("internal_key_material=False needs a path, because the key material is "
                        "written next to the file")
    filesystem, path = resolve(path, filesystem)
    check_new_file(filesystem, path)
    try:
        check_new_file(filesystem, material_path(path))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise UnsupportedError(
            "its name is too long: the name of its key material file is "
            f"{len(material_path(path)) - len(path)} bytes longer; use a shorter name, or store "
            "the key material in the Parquet file", file=path) from None
    return filesystem, path


def check_new_file(filesystem: pa_fs.FileSystem, path: str) -> None:
    """Raise FileExistsError, which says what to do, if anything exists at the path."""
    try:
        check_absent(filesystem, path)
    except FileExistsError:
        raise _exists(path) from None


def _exists(path: str) -> FileExistsError:
    return FileExistsError(f"{path} exists; a file with external key material cannot be replaced "
                           "in one step: remove both, or use another name")


def _missing(path: str) -> KeyNotFoundError:
    return KeyNotFoundError("its key material is missing: it must be stored in "
                            f"{material_path(path)}", file=path)


def _to_bytes(materials: Mapping[str, str]) -> bytes:
    return json.dumps(dict(materials), separators=(",", ":")).encode()


@contextlib.contextmanager
def _checked(where: str) -> Iterator[None]:
    """Convert errors of what anyone who can write to the folder may have put there."""
    try:
        yield
    except (FormatError, IsADirectoryError):
        raise KeyRetrievalError("the key material is too large, or not a regular file: restore it "
                                "from a backup", file=where) from None


def _parsed(data: bytes, where: str) -> dict[str, str]:
    try:
        materials = parse_json(data, decode=decode_once)
    except ValueError:
        materials = None
    if not isinstance(materials, dict) \
            or not all(isinstance(text, str) for text in materials.values()):
        raise KeyRetrievalError("this is not valid key material: it is not a JSON object of "
                                "strings", file=where)
    return materials
