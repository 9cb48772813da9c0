"""A module at another place than its own does not open."""

from __future__ import annotations

import secure_bloom
from secure_bloom.crypto.modules import module_length
from secure_bloom.errors import AuthenticationError, FormatError
from tests.modes import ENCRYPTED
from tests.soak.check import Case, Check
from tests.soak.generators import small_file

_COLUMNS = "secret", "name", "open"


def _try(case: Case) -> None:
    """Put filter modules in the place of others: column, row group, kind, file, older version."""
    mode = case.random.choice([mode for mode in ENCRYPTED if mode.is_uniform])
    files = [small_file(case, mode)[0] for _ in range(2)]
    modules = [_modules(data, mode.keys) for data in files]
    for _ in range(200):
        source, target = case.random.choice([(0, 0), (1, 0)])
        taken = case.random.choice(list(modules[source]))
        group, name, kind = case.random.choice(list(modules[0]))
        if source == target and taken == (group, name, kind):
            continue
        start, end = modules[0][group, name, kind]
        piece = files[source][slice(*modules[source][taken])]
        if len(piece) != end - start:
            case.counts["of another length"] += 1
            continue
        data = files[0][:start] + piece + files[0][end:]
        with secure_bloom.ParquetFile(data, mode.keys) as file:
            try:
                found = file.read_bloom_filter(group, name)
            except (AuthenticationError, FormatError) as error:
                assert (error.row_group, error.column) == (group, name)
            else:
                raise AssertionError(f"{mode}: {taken} of file {source} opened as "
                                     f"{(group, name, kind)}: {found}")
        case.tried += 1
        case.counts["of another file" if source else "of another place"] += 1


def _modules(data: bytes, keys: object) -> dict[tuple[int, str, str], tuple[int, int]]:
    with secure_bloom.ParquetFile(data, keys) as file:
        found = {}
        for info in file.bloom_filters:
            middle = info.offset + (module_length(data[info.offset:]) or 0)
            end = info.offset + (info.length or 0)
            found[info.row_group, info.column, "header"] = info.offset, middle
            found[info.row_group, info.column, "bitset"] = middle, end
        return found


CHECK = Check("swaps", "an encrypted module opens at its own place only", "swaps", 10**6, _try)
