"""Which columns a path in an encryption configuration means, also where names have dots."""

import io
import os
import random

import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    attach,
    verify_file,
    write_dataset,
    write_table,
)
from secure_bloom.arrow import encryption
from secure_bloom.errors import ColumnError, UnsupportedError
from tests.support import kms

CONFIGURATIONS = [EncryptionConfiguration, pe.EncryptionConfiguration]
both = pytest.mark.parametrize("configuration", CONFIGURATIONS,
                               ids=lambda c: c.__module__.partition(".")[0])

COLUMN, FIELD = {"st.b": [1]}, {"st": [{"b": 2, "c": 3}]}
GROUP, DOTTED_GROUP = {"st": [{"b": {"x": 2}, "c": 3}]}, {"st.b": [{"z": 1}]}
#: columns, and what has the path ``st.b`` in them
AMBIGUOUS = [
    (COLUMN | GROUP, "the column 'st.b' and the group 'b' in 'st'"),
    (COLUMN | FIELD, "the column 'st.b' and the column 'b' in 'st'"),
    (DOTTED_GROUP | GROUP, "the group 'st.b' and the group 'b' in 'st'"),
    (DOTTED_GROUP | FIELD, "the group 'st.b' and the column 'b' in 'st'"),
    (COLUMN | {"st": [{"b": [1, 2], "c": 3}]}, "the column 'st.b' and the group 'b' in 'st'"),
    ({"a": [1], "st": pa.array([{"b": {"x": 1}}]), **COLUMN},
     "the group 'b' in 'st' and the column 'st.b'"),
]


def encrypted(columns, column_keys, configuration=EncryptionConfiguration) -> dict:
    """Whether each leaf column, by its path in parts, is encrypted in a file of these columns."""
    sink = io.BytesIO()
    write_table(pa.table(columns), sink, bloom_filters={}, keys=kms(),
                encryption=configuration("mf", column_keys=column_keys))
    file = ParquetFile(sink.getvalue(), kms())
    assert file.read().equals(pa.table(columns))
    return {chunk.column.parts: chunk.encryption == "column key"
            for chunk in file.footer.row_groups[0]}


@both
@pytest.mark.parametrize(("columns", "named"), AMBIGUOUS)
def test_a_path_of_several_columns_or_groups_gets_no_key(tmp_path, columns, named, configuration):
    with pytest.raises(ColumnError, match=f"2 columns or groups have this path.*{named}") as caught:
        write_table(pa.table(columns), tmp_path / "x", bloom_filters={}, keys=kms(),
                    encryption=configuration("mf", column_keys={"mc": ["st.b"]}))
    assert caught.value.column == "st.b"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("columns", "named"), AMBIGUOUS)
def test_a_path_of_several_columns_or_groups_gets_no_filter(tmp_path, columns, named):
    path = tmp_path / "x"
    with pytest.raises(ColumnError, match=named):
        write_table(pa.table(columns), path, bloom_filters={"st.b": True})
    assert os.listdir(tmp_path) == []
    write_table(pa.table(columns), path, bloom_filters={})
    assert named in attach(path, {"st.b": True}).failed[str(path)]
    file = ParquetFile(path)
    for use in (lambda: file.might_contain("st.b", [1]), lambda: file.prune([("st.b", "==", 1)]),
                lambda: file.read(filters=[("st.b", "==", 1)]),
                lambda: verify_file(path, columns=["st.b"])):
        with pytest.raises(ColumnError, match=named):
            use()


@both
def test_names_with_dots_that_mean_one_thing(configuration):
    x, y = ("a.b", "x"), ("a", "c")
    columns = {"a.b": [{"x": 1}], "a": [{"c": 2}], "d.e": [3], "f": [4]}
    for path, expected in (("a.b", {x}), ("a.b.x", {x}), ("d.e", {("d.e",)}), ("a.c", {y})):
        found = encrypted(columns, {"mc": [path]}, configuration)
        assert {parts for parts in found if found[parts]} == expected
    # pyarrow also takes the column a.b for a field of a.
    assert encrypted(columns, {"mc": ["a"]}, configuration) == {
        x: True, y: True, ("d.e",): False, ("f",): False}


@both
def test_groups_at_any_depth(configuration):
    columns = {"s": [{"g": {"x": 1, "h": {"y": 2}}, "z": 3}], "l": [[{"p": 1, "q": 2}]]}
    for path, count in (("s", 3), ("s.g", 2), ("s.g.h", 1), ("s.g.h.y", 1), ("l", 2),
                        ("l.list", 2), ("l.list.element", 2), ("l.list.element.q", 1)):
        found = encrypted(columns, {"mc": [path]}, configuration)
        assert sum(found.values()) == count
        assert all(is_encrypted == f"{'.'.join(parts)}.".startswith(f"{path}.")
                   for parts, is_encrypted in found.items())


def test_the_path_of_a_field_goes_before_that_of_its_group():
    table = pa.table({"s": [{"g": {"x": 1, "h": {"y": 2, "w": 2}}, "z": 3}]})
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters={}, keys=kms(), encryption=EncryptionConfiguration(
        "mf", {"mc": ["s", "s.g.h.y"], "md": ["s.g.h", "s.g.x"], "mf": ["s.g"]}))
    chunks = ParquetFile(sink.getvalue(), kms()).footer.row_groups[0]
    assert [(chunk.column.path, next(key for key in ("mf", "mc", "md")
                                     if b'"masterKeyID":"%s"' % key.encode() in chunk.key_metadata))
            for chunk in chunks] == [
        ("s.g.x", "md"), ("s.g.h.y", "mc"), ("s.g.h.w", "md"), ("s.z", "mc")]


def test_a_field_below_a_group_that_pyarrow_cannot_be_told():
    for name in ("p,q", "p ", "p:q"):
        columns = {"s": [{"g": {name: 1}}]}
        assert encrypted(columns, {"mc": ["s"]}) == {("s", "g", name): True}
        with pytest.raises(UnsupportedError, match="with its own key") as caught:
            encrypted(columns, {"mc": ["s.g"]})
        assert caught.value.column == f"s.g.{name}"


@pytest.mark.slow
def test_random_names_with_dots():
    """Whatever a path means is encrypted, and what means several things is refused."""
    rng = random.Random(7)
    names = ["a", "b", "a.b", "b.a", "a.b.a"]
    outcomes = {True: 0, False: 0}
    for _ in range(300):
        def value(depth):
            if depth == 0 or rng.random() < 0.4:
                return 1
            return {name: value(depth - 1) for name in rng.sample(names, rng.randrange(1, 4))}
        columns = {name: [value(2)] for name in rng.sample(names, rng.randrange(1, 4))}
        leaves = [leaf.parts for leaf in ParquetFile(_plain(columns)).columns]
        nodes = {leaf[:depth] for leaf in leaves for depth in range(1, len(leaf) + 1)}
        path = ".".join(rng.choice(sorted(nodes)))
        meant = {node for node in nodes if ".".join(node) == path}
        below = {leaf for leaf in leaves for node in meant if leaf[:len(node)] == node}
        try:
            found = encrypted(columns, {"mc": [path]})
        except ColumnError:
            spellings = [".".join(node) for node in nodes]
            assert len(meant) > 1 or any(spellings.count(".".join(leaf)) > 1 for leaf in below)
            outcomes[False] += 1
        else:
            assert len(meant) == 1
            assert below <= {leaf for leaf in leaves if found[leaf]}
            outcomes[True] += 1
    assert min(outcomes.values()) > 20


def _plain(columns) -> bytes:
    sink = io.BytesIO()
    write_table(pa.table(columns), sink, bloom_filters={})
    return sink.getvalue()


def test_a_file_in_which_pyarrow_has_left_a_column_unencrypted_is_discarded(tmp_path, monkeypatch):
    told = encryption._under_aliases

    def forgetful(configuration):
        pyarrows, names = told(configuration)
        pyarrows.column_keys = {key: columns[:1] for key, columns in pyarrows.column_keys.items()}
        return pyarrows, names

    monkeypatch.setattr(encryption, "_under_aliases", forgetful)
    with pytest.raises(UnsupportedError, match="did not encrypt this column") as caught:
        write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "x", bloom_filters={}, keys=kms(),
                    encryption=EncryptionConfiguration("mf", {"mc": ["a", "b"]}))
    assert (caught.value.row_group, caught.value.column) == (0, "b")
    assert os.listdir(tmp_path) == []


def test_other_columns_are_encrypted_under_the_master_key_of_the_footer(tmp_path):
    table = pa.table({"ssn": ["1"], "st": [{"b": 1, "c": {"d": 2}}], "st.e": [1], "tags": [["x"]],
                      "city": ["Rome"]})
    configuration = EncryptionConfiguration("mf", {"mc": ["ssn", "st.c"]},
                                            other_columns="footer key")
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters=["ssn", "city"], keys=kms(), encryption=configuration)
    with ParquetFile(sink.getvalue(), kms(), require_encryption=True) as file:
        assert file.read().equals(table)
        keys = {chunk.column.path: file.footer.crypto.master_key(chunk.key_metadata)
                for chunk in file.footer.column_chunks()}
        assert keys == {"ssn": "mc", "st.b": "mf", "st.c.d": "mc", "st.e": "mf",
                        "tags.list.element": "mf", "city": "mf"}
        assert all(one.encrypted for one in file.bloom_filters)
    both = EncryptionConfiguration("mf", {"mf": ["ssn"]}, other_columns="footer key")
    write_table(table, sink := io.BytesIO(), keys=kms(), encryption=both)
    assert ParquetFile(sink.getvalue(), kms(), require_encryption=True).num_rows == 1
    with pytest.raises(UnsupportedError, match="rename it"):
        write_table(table.append_column("a:b", [[1]]), io.BytesIO(), keys=kms(),
                    encryption=configuration)
    for wrong in ({"other_columns": "open"}, {"uniform_encryption": True, "column_keys": None}):
        with pytest.raises(ValueError, match="other_columns"):
            EncryptionConfiguration(**{"footer_key": "mf", "column_keys": {"mc": ["ssn"]},
                                       "other_columns": "footer key", **wrong})
    with pytest.raises(ColumnError, match="folder names"):
        write_dataset(table, tmp_path / "x", partition_by="city", keys=kms(),
                      encryption=configuration)
