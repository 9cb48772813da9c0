"""Key metadata that was changed: a right answer, or an error of ours with its place.

Of every field several changes are made: to the material of the footer and of a column, in the file
and beside it, with single and double wrapping. What pyarrow would make of it must not show.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    attach,
    audit,
    read_table,
    seal,
    strip,
    verify_file,
    write_table,
)
from secure_bloom.cli.report import inspect_file
from secure_bloom.errors import KeyRetrievalError, SecureBloomError
from secure_bloom.keys import InMemoryKms, list_master_keys, rotate_master_keys
from secure_bloom.keys.material import KeyMaterial, find_material
from secure_bloom.keys.retrieval import KmsKeys
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.table_names import material_path
from tests.support import open_footer
from tests.tiers import sweep_where

KEYS = {"footer": b"f" * 16, "pii": b"p" * 16, "new": b"n" * 16}
KMS = InMemoryKms(KEYS)
TABLE = pa.table({"ssn": ["a", "b"], "city": ["x", "y"]})
OF_FOOTER, OF_COLUMN = "footerKey", "columnKey0"

Change = Callable[[bytes], bytes]


# --- the changes ---------------------------------------------------------------------------------

FIELDS = ("keyMaterialType", "internalStorage", "keyReference", "isFooterKey", "kmsInstanceID",
          "kmsInstanceURL", "masterKeyID", "wrappedDEK", "doubleWrapping", "keyEncryptionKeyID",
          "wrappedKEK")
VALUES = (..., None, True, False, 7, "", "x", "new", "é\0", "\ud800", {"a": ["b"]})
TWICE = {"first": lambda name: lambda material: b'{"%s":"x",' % name.encode() + material[1:],
         "last": lambda name: with_more(b'"%s":"x"' % name.encode())}


def with_field(name: str, value) -> Change:
    def change(material: bytes) -> bytes:
        fields = {**json.loads(material), name: value}
        return json.dumps({key: one for key, one in fields.items() if one is not ...}).encode()
    return change


def with_more(text: bytes) -> Change:
    """The fields with something behind the last one."""
    return lambda material: material[:-1] + b"," + text + b"}"


CHANGES: dict[str, Change] = {
    **{f"{name}={value!r}"[:60]: with_field(name, value) for name in FIELDS for value in VALUES},
    **{f"{name} twice, {where}": change(name) for name in ("masterKeyID", "wrappedDEK")
       for where, change in TWICE.items()},
    "empty": lambda _: b"", "no JSON": lambda material: material[:-1],
    "list": lambda material: b"[" + material + b"]",
    "deep": with_more(b'"q":' + b"[" * 50_000 + b"]" * 50_000),
    "deep objects": with_more(b'"q":' + b'{"q":' * 20_000 + b"1" + b"}" * 20_000),
    "deep alone": lambda _: b"[" * 100_000,
    "no UTF-8": with_more(b'"q":"\xff"'),
    "UTF-16": lambda material: material.decode().encode("utf-16"),
    "byte order mark": lambda material: b"\xef\xbb\xbf" + material,
    "NaN": with_more(b'"q":NaN'), "number": with_more(b'"q":' + b"9" * 5000),
    "behind": lambda material: material + b"x", "NUL": lambda material: material + b"\0",
    "huge": with_field("masterKeyID", "x" * 1_000_000),
    "spaces": lambda material: b" " * 1_000_000 + material,
}


# --- the files -----------------------------------------------------------------------------------

@cache
def whole(internal: bool, double: bool, folder: Path) -> tuple[bytes, dict[str, str]]:
    """A file, and what stands beside it."""
    path = folder / "whole.parquet"
    write_table(TABLE, path, bloom_filters={"ssn": True, "city": True}, keys=KMS, row_group_size=1,
                encryption=EncryptionConfiguration(
                    "footer", {"pii": ["ssn"]}, double_wrapping=double,
                    internal_key_material=internal))
    beside = {} if internal else json.loads(Path(material_path(str(path))).read_text())
    return path.read_bytes(), beside


def with_metadata(data: bytes, beside: dict[str, str], place: str, change: Change) -> bytes:
    """A file with other key metadata, as somebody with its keys can make it."""
    footer = open_footer(data, KmsKeys(KMS, lambda: beside))
    _ = footer.crypto.footer_cipher
    if place == OF_FOOTER:
        footer.set_footer_key_metadata(change(footer.footer_key_metadata))
    else:
        for [ssn, _] in footer.row_groups:
            _ = ssn.cipher
            ssn.set_key_metadata(change(ssn.key_metadata))
    return data[:footer.start] + footer.to_bytes()


def changed_files(folder: Path, internal: bool, double: bool, place: str) -> Iterator[Path]:
    """One file for each of the changes."""
    data, beside = whole(internal, double, folder.parent)
    folder.mkdir()
    for number, change in enumerate(CHANGES.values()):
        path = folder / f"{number}.parquet"
        content, entries = data, beside
        if internal or number % 2:  # beside it, the reference and the material in turns
            content = with_metadata(data, beside, place, change)
        else:
            changed = change(beside[place].encode()).decode("utf-8", "surrogateescape")
            entries = {**beside, place: changed}
        path.write_bytes(content)
        if not internal:
            Path(material_path(str(path))).write_bytes(json.dumps(entries).encode())
        yield path


every_kind = pytest.mark.parametrize(("internal", "double", "place"), [
    (internal, double, place) for internal in (True, False) for double in (True, False)
    for place in (OF_FOOTER, OF_COLUMN)])
#: two kinds are enough for a merge: they differ in each of the three properties
most_in_sweep = sweep_where(lambda internal, double, place: not internal != double == (
    place == OF_COLUMN))


# --- files one by one ----------------------------------------------------------------------------

WAYS = {
    "read": lambda path: read_table(path, keys=KMS).equals(TABLE),
    "read ssn": lambda path: read_table(path, keys=KMS, columns=["ssn"],
                                        filters=[("ssn", "==", "b")]).num_rows == 1,
    "batches": lambda path: pa.Table.from_batches(
        ParquetFile(path, KMS).iter_batches()).equals(TABLE),
    "might_contain": lambda path: ParquetFile(path, KMS).might_contain(
        "ssn", ["a", "b", "c"]).tolist() == [[True, False, False], [False, True, False]],
    "prune": lambda path: ParquetFile(path, KMS).prune([("ssn", "==", "b")]) == [1],
    "inspect": lambda path: inspect_file(OpenFile(path, KMS))["columns"][0]["filters"] in (
        2, None),
}


@pytest.mark.slow
@most_in_sweep
@every_kind
def test_every_way_in_gives_the_right_answer_or_an_error_with_its_place(tmp_path, internal, double,
                                                                       place):
    answers, asked, ways = 0, 0, list(WAYS.items())
    for number, (path, name) in enumerate(zip(
            changed_files(tmp_path / "a", internal, double, place), CHANGES, strict=True)):
        for way, ask in ways[(number + internal) % 2::2]:  # all with each change in two kinds
            asked += 1
            try:
                assert ask(path), (name, way)
                answers += 1
            except SecureBloomError as error:
                assert isinstance(error, KeyRetrievalError), (name, way, error)
                assert str(error.file).startswith(str(tmp_path)), (name, way, error)
                assert place == OF_FOOTER or error.column == "ssn", (name, way, error)
                assert len(str(error)) < 1000, (name, way)
        result = verify_file(path, KMS)
        assert not result.findings, (name, result.findings)
        if place == OF_COLUMN:  # whatever is wrong with one column, the other one can be read
            assert read_table(path, keys=KMS, columns=["city"]).equals(TABLE.select(["city"])), name
    assert 0 < answers < asked


# --- folders -------------------------------------------------------------------------------------

@pytest.mark.slow
@most_in_sweep
@every_kind
def test_folder_commands_go_on_and_report_what_they_cannot_do(tmp_path, internal, double, place):
    folder = tmp_path / "a"
    bad = {str(path) for path in changed_files(folder, internal, double, place)}
    good = str(folder / "zz.parquet")
    write_table(TABLE, good, bloom_filters={"ssn": True}, keys=KMS,
                encryption=EncryptionConfiguration("footer", {"pii": ["ssn"]}))
    result = attach(folder, {"ssn": True}, KMS, replace=True)
    attached = {change.file for change in result.changed}
    assert good in attached and attached | result.failed.keys() == {good} | bad
    assert bad & result.failed.keys()
    for path in attached:
        assert read_table(path, keys=KMS, filters=[("ssn", "==", "b")]).num_rows == 1
    listed = list_master_keys(folder, KMS)
    assert listed.files == len(bad) + 1 and set(listed.failed) <= bad
    audited = audit(folder, KMS)
    assert next(file for file in audited.files if file.file == good).not_checked == []
    assert {file.file for file in audited.files if file.not_checked} == set(result.failed)
    assert good not in seal(folder, KMS).failed
    rotated = rotate_master_keys(folder, KMS, old="pii", new="new")
    assert good in rotated.rotated and set(rotated.rotated) | set(rotated.failed) <= {good} | bad
    for path in rotated.rotated:
        if path in attached:
            assert read_table(path, keys=KMS).num_rows == 2
    assert good in [change.file for change in strip(folder, KMS, columns=["ssn"]).changed]
    for failed in (result.failed, listed.failed, rotated.failed):
        assert all(0 < len(message) < 1000 for message in failed.values())


@pytest.mark.parametrize("content", [
    b"", b"[]", b"null", b"{}", b'{"footerKey": 5}', b'{"footerKey": {}}', b"\xff\xfe\xff",
    b"[" * 100_000, b'{"footerKey": "x", "footerKey": "y"}', "{}".encode("utf-16")], ids=range(10))
def test_a_file_of_key_material_that_is_none(tmp_path, content):
    whole(False, True, tmp_path)
    Path(material_path(str(tmp_path / "whole.parquet"))).write_bytes(content)
    for ask in WAYS.values():
        with pytest.raises(KeyRetrievalError) as raised:
            ask(tmp_path / "whole.parquet")
        assert str(raised.value.file).startswith(str(tmp_path))


def test_a_folder_in_place_of_key_material(tmp_path):
    whole(False, True, tmp_path)
    material = Path(material_path(str(tmp_path / "whole.parquet")))
    material.unlink()
    material.symlink_to(tmp_path)
    for ask in WAYS.values():
        with pytest.raises(KeyRetrievalError, match="not a regular file"):
            ask(tmp_path / "whole.parquet")
    result = rotate_master_keys(tmp_path, KMS, old="pii", new="new")
    assert "not a regular file" in result.failed[str(tmp_path / "whole.parquet")]


def test_a_name_that_stands_twice_beside_the_file_is_refused(tmp_path):
    """pyarrow would take the first one, Python the last one."""
    _, beside = whole(False, True, tmp_path)
    where = Path(material_path(str(tmp_path / "whole.parquet")))
    where.write_text(json.dumps(beside)[:-1] + ', "columnKey0": ' + json.dumps(beside["columnKey0"])
                     + "}")
    with pytest.raises(KeyRetrievalError, match="not valid key material"):
        read_table(tmp_path / "whole.parquet", keys=KMS, columns=["city"])


def test_no_instance_of_the_file_decides_where_keys_are_asked_for(tmp_path):
    data, _ = whole(True, True, tmp_path)
    for value in ("", "x", "http://elsewhere"):
        for name in ("kmsInstanceID", "kmsInstanceURL"):
            path = tmp_path / "a.parquet"
            path.write_bytes(with_metadata(data, {}, OF_FOOTER, with_field(name, value)))
            assert read_table(path, keys=KMS).equals(TABLE)


def test_material_that_only_we_can_read_is_still_read(tmp_path):
    """Fields of later versions, and without those that older versions did not have."""
    data, _ = whole(True, True, tmp_path)
    for change in (with_more(b'"new":[1]'), with_field("isFooterKey", ...),
                   with_field("internalStorage", ...)):
        for place in (OF_FOOTER, OF_COLUMN):
            changed = with_metadata(data, {}, place, change)
            assert read_table(changed, keys=KMS).equals(TABLE)
            assert ParquetFile(changed, KMS).prune([("ssn", "==", "b")]) == [1]


def test_pyarrow_and_we_use_the_same_key(tmp_path):
    """Two values for a field: pyarrow takes the first, so filters and rows had different keys."""
    data, _ = whole(True, False, tmp_path)
    footer = open_footer(data, KmsKeys(KMS))
    own = json.loads(footer.row_groups[0][0].key_metadata)
    material = KeyMaterial("new", KMS.wrap_key(b"k" * 16, "new"))
    twice = with_metadata(data, {}, OF_COLUMN, lambda metadata: metadata[:-1] + b"".join(
        b',"%s":%s' % (name.encode(), json.dumps(value).encode()) for name, value in (
            ("masterKeyID", material.master_key_id), ("wrappedDEK", material.wrapped_dek))) + b"}")
    assert own["masterKeyID"] == "pii"
    with pytest.raises(KeyRetrievalError, match=r"column ssn: .* duplicate"):
        read_table(twice, keys=KMS)


def test_material_beside_the_file_is_read_once(tmp_path):
    """What is checked is what pages are read with: it cannot be exchanged in between."""
    table, path = pa.table({"a": [1, 2]}), tmp_path / "a.parquet"
    write_table(table, path, keys=KMS, encryption=EncryptionConfiguration(
        "footer", {"pii": ["a"]}, internal_key_material=False))
    with ParquetFile(path, KMS, require_encryption={"a": "pii"}) as file:
        Path(material_path(str(path))).unlink()
        assert file.read().equals(table)


def test_material_that_resembles_other_material_is_parsed_as_any_other():
    """What is the same in all files of a job is parsed once: only the data key may differ."""
    whole = KeyMaterial("pii", "QUJD", b"id", "S0VL", is_footer_key=True).serialize()
    own = b',"wrappedDEK":"QUJD"'
    texts = [whole, *(change(whole) for name, change in CHANGES.items() if "deep" not in name),
             *(whole.replace(own, other) for other in (
                 b"", own * 2, b',"wrappedDEK": "QUJD"', b',"wrappedDEK":""', b',"wrappedDEK":"%"',
                 own + b',"wrapped\\u0044EK":"eHg="', b',"q":{"a":1,"wrappedDEK":"eHg="}',
                 b',"q":{"a":1,"wrappedDEK":"eHg="},"wrappedDEK": "QUJD"',
                 b',"q":{"a":1,"wrappedDEK":"eHg="},"wrappedDEK": ""',
                 b',"q\\","wrappedDEK":"eHg=","wrappedDEK": "QUJD"',
                 b',"q,\\"wrappedDEK":"eHg=","wrappedDEK": "QUJD"'))]
    random = Random(1)
    for _ in range(500):
        at = random.randrange(len(whole))
        texts.append(whole[:at] + random.choice(b'{}[]",:\\ \0AQ').to_bytes() + whole[at + 1:])

    def outcome(text):
        try:
            return KeyMaterial.parse(text)
        except KeyRetrievalError as error:
            return str(error)

    for text in texts:
        try:
            expected = outcome(text.decode())  # text is parsed as a whole
        except UnicodeDecodeError:
            continue
        assert [outcome(text), outcome(text)] == [expected] * 2, text
    assert find_material(whole.replace(b"QUJD", b"eHg="), dict).wrapped_dek == "eHg="
