"""An erasure that dies at any moment has happened or not; the next one leaves nothing behind."""

import shutil

import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, erase
from secure_bloom.index import Index, build
from secure_bloom.keys.external import read_material
from secure_bloom.storage.table_names import material_path
from secure_bloom.storage.visibility import data_files
from tests.erasing.helpers import KMS, numbers_in, ssn, write_people
from tests.index.helpers import LOCAL, age, manifests_of, segments_of
from tests.index.test_crashes import dies

EXTERNAL = EncryptionConfiguration("footer", {"pii": ["ssn"]}, internal_key_material=False)
OLD = [*range(1, 40)]
ERASED = [3, 4, 21]
NEW = [number for number in OLD if number not in ERASED]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """An indexed table: a file of ours, two foreign ones, one of which holds nobody to erase."""
    folder = tmp_path_factory.mktemp("erase") / "base"
    secure_bloom.write_dataset(secure_bloom.read_table(write_people(folder / "x", range(1, 15)),
                                                       KMS),
                               folder, encryption=EncryptionConfiguration(
                                   "footer", {"pii": ["ssn"]}), keys=KMS, mode="append")
    (folder / "x").unlink()
    write_people(folder / "part=1" / "a.parquet", range(15, 30), encryption=EXTERNAL)
    write_people(folder / "b.parquet", range(30, 40))
    for path in data_files(LOCAL, str(folder)):
        head, _, name = path.rpartition("/")
        with open(f"{head}/.{name}.crc", "wb") as file:
            file.write(b"checksum")
    age(folder, 100)
    build(folder, "ssn", KMS)
    return folder


def visible(folder) -> list[int]:
    return sorted(number for path in data_files(LOCAL, str(folder)) for number in numbers_in(path))


def segment_ids(folder) -> list[str]:
    return [info.id for info in Index.open(folder, KMS).column("ssn").manifest.body.segments]


def run(folder, filesystem=LOCAL):
    return erase(str(folder), "ssn", list(map(ssn, ERASED)), KMS, max_share=1,
                 filesystem=filesystem, files_at_once=1)


def check_lookups(folder, rows) -> None:
    """Every row that is there is found in the file that has it, if the index covers that."""
    found = Index.open(folder, KMS).lookup("ssn", list(map(ssn, rows)))
    place = {number: path[len(str(folder)) + 1:] for path in data_files(LOCAL, str(folder))
             for number in numbers_in(path)}
    for number, one in zip(rows, found.row_groups, strict=True):
        assert place[number] in {*one, *found.uncovered}


def check_finished(folder, base) -> None:
    """Nothing is left but the new files, the index of them, and what always stays."""
    assert visible(folder) == NEW
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    data = {str(path)[len(str(folder)) + 1:] for path in data_files(LOCAL, str(folder))}
    assert len(data) == 3
    [external] = [name for name in data if name.startswith("part=1/")]
    assert read_material(LOCAL, f"{folder}/{external}")
    index = {name for name in names if name.startswith("_index/")}
    assert not {path.name for path in segments_of(base)} & {path.name for path in
                                                            segments_of(folder)}
    Index.open(folder, KMS).vacuum(0)
    assert len(segments_of(folder)) == 1 == len(manifests_of(folder))
    assert names - data - index == {"_SUCCESS", "_staging/generation", ".b.parquet.crc",
                                    material_path(external)}
    assert (folder / "b.parquet").read_bytes() == (base / "b.parquet").read_bytes()


def copy(base, folder):
    shutil.copytree(base, folder)
    Index.open(folder, KMS).update()  # of which files these are now
    return folder


pytestmark = pytest.mark.usefixtures("settled")


@pytest.mark.slow
@pytest.mark.parametrize("every", [61, pytest.param(2, marks=pytest.mark.sweep)])
def test_death_at_any_step(base, tmp_path, every):
    steps, seen = 0, set()
    while True:
        folder = copy(base, tmp_path / str(steps))
        is_dead = dies(lambda filesystem, folder=folder: run(folder, filesystem), steps)
        rows = visible(folder)
        assert rows in (OLD, NEW)
        seen.add(rows == NEW)
        check_lookups(folder, rows)
        result = run(folder)
        assert result.ok and result.rows_removed == (3 if rows == OLD else 0)
        assert result.indexes == ["ssn"]
        assert is_dead or segment_ids(folder) == segment_ids(base)  # only pages were written again
        check_finished(folder, base)
        shutil.rmtree(folder)
        if not is_dead:
            break
        steps += every
    assert seen == {False, True} and steps > 200, steps


@pytest.mark.slow
@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.sweep)])
def test_death_while_a_single_file_is_replaced(base, tmp_path, every):
    steps = 0
    while True:
        folder = copy(base, tmp_path / str(steps))
        path = folder / "b.parquet"

        def one(filesystem, path=path):
            return erase(str(path), "ssn", ssn(33), KMS, max_share=1, filesystem=filesystem)

        is_dead = dies(one, steps)
        assert numbers_in(path) in ([*range(30, 40)], [n for n in range(30, 40) if n != 33])
        assert one(LOCAL).ok
        assert numbers_in(path) == [n for n in range(30, 40) if n != 33]
        names = {entry.name for entry in folder.iterdir()
                 if entry.name.startswith(("b.parquet", ".b.parquet"))}
        assert names <= {"b.parquet", ".b.parquet.crc"}
        shutil.rmtree(folder)
        if not is_dead:
            break
        steps += every
    assert steps > 20
