"""Damaged, exchanged and hostile index files: an error that names the file, or a right answer."""

import base64
import json
import os
import random
import shutil
from urllib.parse import unquote

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.errors import (
    AuthenticationError,
    ChangedMeanwhileError,
    ColumnError,
    FileError,
    FormatError,
    IndexWarning,
    KeyNotFoundError,
    KeyRetrievalError,
    SecureBloomError,
    UnsupportedError,
)
from secure_bloom.index import (
    Index,
    build,
    folder,
    opened_indexes,
    segment,
    segment_writer,
)
from secure_bloom.index.folder import folder_name
from secure_bloom.index.lookup import look_up
from secure_bloom.index.manifest import Body
from secure_bloom.index.sealing import MAGIC, IndexKey, ModuleType
from secure_bloom.index.segment_info import SegmentInfo
from secure_bloom.index.stamps import stamp
from secure_bloom.index.table import Table
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.environment import NO_KEYS
from tests.index.helpers import (
    KEYS,
    KMS,
    LOCAL,
    age,
    build_segment,
    folder_of,
    manifests_of,
    open_segment,
    segments_of,
    write,
)
from tests.index.planting import plant

PROBES = ["v1", "v2", "v3", "absent"]
VALUES = {"a.parquet": ["v1", "v2"], "b.parquet": ["v3"]}


@pytest.fixture(params=["column", None])
def table(request, tmp_path):
    """A small table with an index of two segments."""
    return make(tmp_path / "t", request.param)


def make(folder, encryption="column", values=VALUES):
    for name, stored in values.items():
        options = {} if encryption else {"encryption": None}
        write(folder / name, stored, rows=1, **options)
        build(folder, "ssn", KMS, encryption=encryption)
    return folder


def lookup(table, keys=KMS):
    opened_indexes._opened.clear()
    return Index.open(table, keys).lookup("ssn", PROBES)


def quick_lookup(table, listing):
    """Look up without listing the table."""
    opened_indexes._opened.clear()
    index = opened_indexes.open_column(folder.IndexFolder(LOCAL, str(table), "ssn"), CachedKms(KMS))
    return look_up(index, index.coverage(listing), PROBES)


def is_right(found, values=VALUES) -> bool:
    """Whether no value is missed."""
    for value, one in zip(["v1", "v2", "v3"], found.row_groups, strict=False):
        for name, stored in values.items():
            if value in stored and name not in found.uncovered \
                    and stored.index(value) not in one.get(name, ()):
                return False
    return True


def check(table, paths, listing=None):
    """Check that a lookup raises an error that names one of some files, or is right."""
    try:
        found = lookup(table) if listing is None else quick_lookup(table, listing)
    except SecureBloomError as error:
        assert error.file in map(str, paths), error
        return error
    assert is_right(found)
    return None


@pytest.mark.slow
def test_any_byte_of_a_segment(table):
    listing = Table(LOCAL, str(table)).listing()
    path = segments_of(table)[0]
    content = path.read_bytes()
    passed = [place for place in range(len(content))
              if flip(path, content, place) or check(table, [path], listing) is None]
    assert passed == [0, 1, 2, 3]  # only these bytes are not read


@pytest.mark.slow
def test_any_byte_of_a_manifest(table):
    listing = Table(LOCAL, str(table)).listing()
    path = manifests_of(table)[-1]
    content = path.read_bytes()
    for place in range(len(content)):
        flip(path, content, place)
        check(table, [path], listing)


def flip(path, content, place):
    path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8])
                     + content[place + 1:])
    os.utime(path, (10**9, 10**9))  # readers wait until fresh files have settled


@pytest.mark.slow
def test_any_truncation(table):
    listing = Table(LOCAL, str(table)).listing()
    for path in (*segments_of(table), manifests_of(table)[-1]):
        content = path.read_bytes()
        for size in range(0, len(content), 7):
            path.write_bytes(content[:size])
            os.utime(path, (10**9, 10**9))
            error = check(table, [path], listing)
            if path.suffix == ".seg":
                assert isinstance(error, FormatError) and "truncated" in str(error)
        path.write_bytes(content)


def test_a_segment_that_is_truncated_while_it_is_open(table):
    index = Index.open(table, KMS)
    assert is_right(index.lookup("ssn", ["v1", "v2", "v3"]))
    for path in segments_of(table):
        path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(FormatError, match="truncated") as raised:
        index.lookup("ssn", ["v1", "v2", "v3"])
    assert raised.value.file in map(str, segments_of(table)) and raised.value.column == "ssn"


def test_exchanged_segments(table):
    first, second = segments_of(table)
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    assert isinstance(check(table, [first, second]), FileError)


def test_exchanged_pages_of_one_segment(tmp_path):
    key = IndexKey.new()
    built = build_segment(tmp_path, key, [[range(20_000)], [range(20_000)]])
    assert built.geometry.num_pages == 8
    (first, size), (second, other) = built.place_of_page(0), built.place_of_page(1)
    path = tmp_path / built.info.name
    content = bytearray(path.read_bytes())
    content[first:first + size + other] = \
        content[second:second + other] + content[first:first + size]
    path.write_bytes(content)
    with pytest.raises(AuthenticationError):
        list(built.decode(0, 8))


def test_indexes_of_exchanged_columns(tmp_path):
    encryption = secure_bloom.EncryptionConfiguration("footer", {"pii": ["a", "b"]})
    secure_bloom.write_table(pa.table({"a": ["1"], "b": ["2"]}), tmp_path / "x.parquet",
                             encryption=encryption, keys=KMS)
    build(tmp_path, ["a", "b"], KMS)
    above = tmp_path / "_index"
    (above / "a").rename(above / "c")
    (above / "b").rename(above / "a")
    (above / "c").rename(above / "b")
    for column in "ab":
        with pytest.raises(FormatError, match="another column") as raised:
            Index.open(tmp_path, KMS).lookup(column, ["1"])
        assert raised.value.file == str(manifests_of(tmp_path, column)[-1])


def test_an_older_manifest_put_back_leaves_files_uncovered(table):
    manifests = manifests_of(table)
    for path in manifests[-2:]:
        path.unlink()
    found = lookup(table)
    assert is_right(found) and found.uncovered
    old = manifests[0].read_bytes()
    manifests[-1].write_bytes(old)  # under the name of a newer one
    assert isinstance(check(table, [manifests[-1]]), FormatError)
    changed = json.loads(old) | {"version": len(manifests)}
    manifests[-1].write_text(json.dumps(changed))
    assert isinstance(check(table, [manifests[-1]]), AuthenticationError)


def test_a_torn_manifest_is_passed_over(table):
    path = manifests_of(table)[-1]
    path.write_bytes(path.read_bytes()[:-10])
    assert check(table, []) is None
    assert Index.open(table, KMS).update().indexed == 1
    assert manifests_of(table)[-1] > path
    assert lookup(table).uncovered == []


def test_without_any_complete_manifest(table):
    for path in manifests_of(table):
        path.write_bytes(b"{")
    assert "complete" in str(check(table, [path]))
    build(table, "ssn", KMS, encryption=_mode(table))
    assert is_right(lookup(table)) and lookup(table).uncovered == []


def _mode(table):
    file = secure_bloom.ParquetFile(table / "a.parquet", KMS)
    return "column" if file.footer.algorithm else None


def test_a_missing_segment_is_an_error_until_the_next_update(table):
    path = segments_of(table)[0]
    path.unlink()
    assert isinstance(check(table, [path]), ChangedMeanwhileError)
    result = Index.open(table, KMS).update()
    assert result.indexed == 1 and len(segments_of(table)) == 2
    found = lookup(table)
    assert is_right(found) and found.uncovered == []


def test_manifests_deleted_after_they_were_listed(table, monkeypatch):
    original = folder.IndexFolder.versions
    calls = []

    def versions(self):
        calls.append(original(self))
        return [1] if len(calls) == 1 else calls[-1]

    manifests_of(table)[0].unlink()
    monkeypatch.setattr(folder.IndexFolder, "versions", versions)
    assert lookup(table).uncovered == [] and len(calls) == 2


# --- what an attacker writes ---------------------------------------------------------------------

MANIFESTS = {
    "deep": b"[" * 100_000, "null": b"null", "list": b"[]", "number": b"1" * 5000,
    "another format": b'{"format": "SBX1"}', "empty": b'{"format": "SBX2"}'}


@pytest.mark.parametrize("name", MANIFESTS)
def test_hostile_manifests(table, name):
    path = manifests_of(table)[-1]
    path.write_bytes(MANIFESTS[name])
    error = check(table, [path])
    assert isinstance(error, FormatError | UnsupportedError) or (name == "number" and not error)


@pytest.mark.parametrize("changed", [
    {"index_id": "00"}, {"index_id": 5}, {"index_key": None}, {"index_key": "AA=="},
    {"index_key": "ä"}, {"body": "!"}, {"body": None}, {"version": "2"}, {"extra": 1},
    {"key_material": "{}"}])
def test_changed_fields_of_a_manifest(tmp_path, changed):
    table = make(tmp_path, None)
    path = manifests_of(table)[-1]
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changed))
    assert isinstance(check(table, [path]), FileError)


def test_a_manifest_that_is_too_large_is_not_read(table, monkeypatch):
    monkeypatch.setattr(folder, "MAX_MANIFEST", 100)
    path = manifests_of(table)[-1]
    with pytest.raises(FormatError, match="at most 100") as raised:
        lookup(table)
    assert raised.value.file == str(path)
    monkeypatch.setattr(folder, "MAX_MANIFEST", path.stat().st_size + 20)
    write(table / "c.parquet", ["v4"], **({} if _mode(table) else {"encryption": None}))
    with pytest.raises(UnsupportedError, match="compact"):
        Index.open(table, KMS).update()
    assert is_right(lookup(table))


def hostile(table, **changed):
    """Store the newest manifest of a plaintext index again, with changed fields of its body."""
    stored = folder_of(table).newest()
    key = IndexKey(stored.index_key, stored.index_id)
    body = json.loads(key.manifest().open(stored.sealed, ModuleType.MANIFEST, stored.version)
                      .to_pybytes())
    for name, change in changed.items():
        body[name] = change(body[name])
    sealed = key.manifest().seal(json.dumps(body).encode(), ModuleType.MANIFEST, stored.version)
    path = manifests_of(table)[-1]
    path.write_text(json.dumps(json.loads(path.read_bytes())
                               | {"body": base64.b64encode(sealed).decode()}))
    return path


@pytest.mark.parametrize("field, value", [
    ("size", 2**62), ("size", 2**70), ("size", -1), ("tail", 2**62), ("tail", 0), ("tail", 1.5),
    ("id", "../../x"), ("id", "0" * 31 + "/"), ("id", "00 " * 10 + "00"), ("id", 5),
    ("id", "0" * 32), ("pairs", None), ("files", "1")])
def test_hostile_descriptions_of_segments_allocate_nothing(tmp_path, field, value):
    table = make(tmp_path, None)
    path = hostile(table, segments=lambda all_: [{**one, field: value} for one in all_[:1]])
    before = pa.total_allocated_bytes()
    missing = folder_of(table).segment_path("0" * 32 + ".seg")
    error = check(table, [path, *segments_of(table), missing])
    assert error is not None or (field, value) == ("tail", 0)
    assert pa.total_allocated_bytes() - before < 10**6


@pytest.mark.parametrize("changed", [
    {"removed": lambda _: [[]]}, {"removed": lambda _: 5}, {"removed": lambda _: ""},
    {"removed": lambda _: {"a": 1}}, {"generation": lambda _: {}},
    {"is_exclusive": lambda _: 1}, {"restamped": lambda _: {"a": [1, 2]}},
    {"restamped": lambda _: {"a": ["1", 2, "00"]}}, {"restamped": lambda _: []},
    {"segments": lambda all_: all_ * 2}, {"segments": lambda _: {}},
    {"segments": lambda _: [5]}])
def test_hostile_bodies(tmp_path, changed):
    table = make(tmp_path, None)
    path = hostile(table, **changed)
    assert isinstance(check(table, [path]), FormatError)


def test_a_body_with_unknown_fields_is_refused():
    for data in (b'{"column": "a", "segments": [], "restamped": {}, "removed": [], "new": 1}',
                 b"[" * 100_000, b"null", b"\xff", b"{}"):
        with pytest.raises(FormatError):
            Body.from_json(data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ModuleType.FOOTER, ModuleType.DIRECTORY, ModuleType.PAGE])
def test_resealed_modules_with_changed_content(tmp_path, kind):
    """Of an index without encryption, anyone can seal modules again."""
    rng = random.Random(kind)
    key = IndexKey.new()
    built = build_segment(tmp_path, key, [[range(30)], [range(100)]])
    path, sealer = tmp_path / built.info.name, key.segment(bytes.fromhex(built.info.id))
    content = path.read_bytes()
    start, size = {ModuleType.PAGE: built.place_of_page(0),
                   ModuleType.DIRECTORY: built._place_of(0),
                   ModuleType.FOOTER: footer_place(content)}[kind]
    plain = sealer.open(content[start:start + size], kind).to_pybytes()
    for _ in range(300):
        changed = bytearray(plain)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7f, 0x80, 0xff, 0x39])
        path.write_bytes(content[:start] + sealer.seal(bytes(changed), kind)
                         + content[start + size:])
        try:
            opened = open_segment(tmp_path, key, built.info)
            list(opened.decode(0, opened.geometry.num_pages))
            fingerprints = key.fingerprints(built_hashes())
            for read in opened.reads(fingerprints):
                opened.find(fingerprints, [read], [opened.read_pages(read)])
        except SecureBloomError:
            pass


def built_hashes():
    import numpy as np
    return np.arange(40, dtype=np.uint64)


def footer_place(content):
    size = int.from_bytes(content[-8:-4], "little")
    assert content[-4:] == MAGIC
    return len(content) - 8 - size, size


def test_parameters_and_versions_that_are_unknown_are_refused(tmp_path):
    key = IndexKey.new()
    built = build_segment(tmp_path, key, [[[1, 2]]])
    path, sealer = tmp_path / built.info.name, key.segment(bytes.fromhex(built.info.id))
    content = path.read_bytes()
    start, size = footer_place(content)
    fields = json.loads(sealer.open(content[start:start + size], ModuleType.FOOTER).to_pybytes())

    def refused(changed, error):
        footer = sealer.seal(json.dumps(fields | changed).encode(), ModuleType.FOOTER)
        path.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + MAGIC)
        info = SegmentInfo(built.info.id, built.info.tail, path.stat().st_size, 2, 1, 1)
        with pytest.raises(error):
            open_segment(tmp_path, key, info)

    refused({"geometry": fields["geometry"] | {"fingerprint_bits": 40}}, UnsupportedError)
    refused({"geometry": fields["geometry"] | {"page_bits": 30}}, FormatError)
    refused({"column_type": fields["column_type"] | {"physical_type": "INT128"}}, FormatError)
    refused({"column_type": None}, FormatError)
    refused({"hash": "murmur"}, UnsupportedError)
    refused({"pairs": -1}, FormatError)
    refused({"directory": 2**65}, FormatError)


# --- keys ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("keys, error", [
    ({"footer": KEYS["footer"]}, KeyNotFoundError),
    (KEYS | {"pii": b"x" * 16}, KeyRetrievalError)])
def test_without_the_right_master_key(tmp_path, keys, error):
    table = make(tmp_path)
    with pytest.raises(error) as raised:
        lookup(table, InMemoryKms(keys))
    assert (raised.value.file, raised.value.column) == (str(manifests_of(table)[-1]), "ssn")
    assert is_right(lookup(table))
    with pytest.raises(error):  # also while another client of this process has it open
        Index.open(table, InMemoryKms(keys)).lookup("ssn", ["v1"])


def test_a_column_without_an_index(tmp_path):
    table = make(tmp_path)
    with pytest.raises(ColumnError, match="indexed columns: ssn"):
        Index.open(table, KMS).lookup("other", ["v1"])
    with pytest.raises(FileNotFoundError, match="no index"):
        Index.open(tmp_path / "_index", KMS)


def test_no_file_of_an_index_has_a_value_or_a_key(tmp_path):
    values = {f"{number}.parquet": [f"secret-value-{number}"] for number in range(3)}
    table = make(tmp_path, values=values)
    Index.open(table, KMS).compact()
    index = Index.open(table, KMS).column("ssn")
    secret = index.manifest.key.secret
    forbidden = [b"secret-value", secret, base64.b64encode(secret), secret.hex().encode(),
                 *KEYS.values(), b".parquet"]  # the names of files are sealed, too
    for path in (table / "_index").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not any(one in content for one in forbidden), path
    shown = [repr(one) for one in (index, index.manifest.key, index.segments, index.manifest,
                                   index.folder, Index.open(table, KMS))]
    for text in shown:
        assert "secret-value" not in text and secret.hex() not in text
        assert repr(secret)[2:-1] not in text


def test_the_representation_of_a_stored_manifest_has_no_key(tmp_path):
    write(tmp_path / "a.parquet", ["v1"], encryption=None)
    build(tmp_path, "ssn", KMS, encryption=None)
    stored = folder_of(tmp_path).newest()
    assert stored.index_key and repr(stored.index_key) not in repr(stored)


def test_an_index_key_is_not_pickled():
    import pickle
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(IndexKey.new())


def test_a_plaintext_index_of_an_encrypted_column_is_never_written(tmp_path):
    write(tmp_path / "a.parquet", ["v1"], encryption=None)
    build(tmp_path, "ssn", KMS, encryption=None)
    write(tmp_path / "b.parquet", ["v2"])
    result = build(tmp_path, "ssn", KMS, encryption=None)
    assert result.indexed == 0 and "b.parquet" in result.failed
    with pytest.raises(ColumnError, match="has no encryption; delete"):
        build(tmp_path, "ssn", KMS)
    shutil.rmtree(tmp_path / "_index")
    with pytest.raises(ColumnError, match="must be encrypted"):
        build(tmp_path, "ssn", KMS, encryption=None)
    assert not (tmp_path / "_index").exists()


def test_an_index_without_encryption_is_not_used_for_files_that_encrypt_the_column(tmp_path):
    """An attacker who knows no key puts an index into the table that says "absent".

    Most files that it claims to cover do not exist.
    """
    table = make(tmp_path / "t")

    def with_others(entries):
        return [*entries, *(entries[0]._replace(path=f"{number}.parquet") for number in range(20))]

    plant(table, "ssn", KMS, change=with_others)
    opened_indexes._opened.clear()
    with pytest.warns(IndexWarning, match="none of the files can be opened") as caught:
        found = Index.open(table, NO_KEYS).lookup("ssn", ["v1"])
    assert found.uncovered and caught[0].filename == __file__  # not a line of the package
    with pytest.warns(IndexWarning, match="no encryption"):
        assert Index.open(table, KMS).lookup("ssn", ["v1"]).uncovered == found.uncovered
    with pytest.warns(IndexWarning, match="not used"):
        found = secure_bloom.read_table(table, KMS, filters=[("ssn", "==", "v1")])
    assert found.num_rows == 1
    opened_indexes._opened.clear()
    for path in table.glob("*.parquet"):
        path.unlink()
    assert Index.open(table, KMS).lookup("ssn", ["v1"]).num_files == 0


def test_an_index_is_compared_with_few_files_once(table, monkeypatch):
    for number in range(8):
        write(table / f"{number}.parquet", ["v4"], encryption=None)
    index = Index.open(table, KMS)
    index.update()
    opened = files_opened_to_check_encryption(monkeypatch)
    for _ in range(2):
        index.lookup("ssn", ["v1"])
    assert len(opened) == len(set(opened)) == 3


def files_opened_to_check_encryption(monkeypatch):
    opened, original = [], Table.open

    def open_file(self, path, *arguments):
        opened.append(path)
        return original(self, path, *arguments)

    monkeypatch.setattr(Table, "open", open_file)
    return opened


def test_an_index_does_not_lead_to_files_outside_of_its_table(tmp_path, monkeypatch):
    """Its paths are what anyone has written who can write to the folder."""
    outside = tmp_path / "outside.parquet"
    write(outside, ["v1"], encryption=None)
    table = make(tmp_path / "t", None)
    stamps, seen = Table._stamps, stamp(LOCAL, LOCAL.get_file_info(str(outside)))
    paths = ["../outside.parquet", str(outside)]
    shutil.rmtree(table / "_index")
    with monkeypatch.context() as context:
        context.setattr(Table, "_stamps", lambda *arguments: stamps(*arguments)
                        | dict.fromkeys(paths, seen))
        result = build(table, "ssn", KMS, encryption=None)
    assert result.indexed == len(VALUES)
    assert set(result.uncovered) == set(paths)
    for path in table.glob("*.parquet"):
        path.unlink()
    opened = files_opened_to_check_encryption(monkeypatch)
    assert lookup(table).row_groups == [{}] * len(PROBES)
    assert opened == []


@pytest.mark.parametrize("keys, error", [(KMS, KeyRetrievalError), (None, UnsupportedError)])
def test_files_under_explicit_keys_cannot_have_an_index(tmp_path, keys, error):
    path = tmp_path / "0.parquet"
    secure_bloom.write_table(
        pa.table({"ssn": ["v1"]}), path,
        encryption=secure_bloom.UniformKey(b"k" * 16, plaintext_footer=True))
    with pytest.raises(error, match="explicit keys") as caught:
        build(tmp_path, "ssn", keys)
    assert caught.value.file == str(path)


@pytest.mark.parametrize("encryption", ["column", None])
def test_files_with_a_readable_footer_need_keys_all_the_same(tmp_path, encryption):
    path = tmp_path / "0.parquet"
    signed = secure_bloom.EncryptionConfiguration("footer", {"pii": ["ssn"]},
                                                  plaintext_footer=True)
    write(path, ["v1"], encryption=signed)
    with pytest.raises(KeyNotFoundError, match="the column is encrypted; pass keys") as caught:
        build(tmp_path, "ssn", encryption=encryption)
    assert caught.value.file == str(path)
    assert build(tmp_path, "ssn", KMS).indexed == 1


def test_vacuum_keeps_everything_if_no_manifest_is_complete(tmp_path):
    """It cannot tell which segments are needed."""
    table = make(tmp_path)
    for path in manifests_of(table):
        path.write_bytes(path.read_bytes()[:-1])
    before = segments_of(table), manifests_of(table)
    assert Index.open(table, KMS).vacuum(0) == []
    assert before == (segments_of(table), manifests_of(table))


def test_names_of_columns_are_safe_names_of_folders():
    for name in ("a/b", ".hidden", "..", "a.b", "ä", "a%2Fb"):
        found = folder_name(name)
        assert "/" not in found and not found.startswith(".")
        assert unquote(found) == name


def test_segments_read_nothing_before_their_tail(tmp_path, monkeypatch):
    reads = []
    key = IndexKey.new()
    built = build_segment(tmp_path, key, [[range(30)]])
    stored = (tmp_path / built.info.name).read_bytes()

    def read_at(offset, size):
        reads.append((offset, size))
        return stored[offset:offset + size]

    segment.Segment(built.info, key.segment(bytes.fromhex(built.info.id)), read_at)
    assert reads == [(built.info.tail, built.info.size - built.info.tail)]


@pytest.mark.parametrize("place", ["page", "page of files"])
def test_a_segment_that_was_repaired_is_read_again(tmp_path, monkeypatch, place):
    """This process has the damaged file open."""
    monkeypatch.setattr(segment_writer, "_FEW_FILES", 0)
    write(tmp_path / "a.parquet", ["v1", "v2"])
    age(tmp_path)
    build(tmp_path, "ssn", KMS)
    [path] = segments_of(tmp_path)
    whole = path.read_bytes()
    opened = Index.open(tmp_path, KMS).column("ssn").segments[0]
    at = 30 if place == "page" else int(opened.file_bounds[0]) + 30
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes([whole[at] ^ 1]))
    with pytest.raises(AuthenticationError):
        Index.open(tmp_path, KMS).lookup("ssn", "v1")
    path.unlink()
    path.write_bytes(whole)
    assert Index.open(tmp_path, KMS).lookup("ssn", "v1").row_groups == [{"a.parquet": [0]}]
    assert Index.open(tmp_path, KMS).update().ok
