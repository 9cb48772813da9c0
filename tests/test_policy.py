"""A policy says by name what must be encrypted; its rules have an order, and a text form."""

import pickle
import subprocess
import sys
import tracemalloc
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_bloom import BloomFilterOptions
from secure_bloom.errors import PolicyError
from secure_bloom.policy import ColumnPolicy, ColumnRule, Policy, TableRules
from tests.cases import for_each
from tests.support import examples, named_pipe

TEXT = """
footer_key = "footer"
encrypted_footer = true
default = "encrypt"
sensitive = ["ssn", "address.*"]

[columns]
ssn = "pii"
"*.street" = { key = "pii", bloom_filter = { fpp = 0.001 } }
email = { bloom_filter = true, plaintext = false }
amount = { plaintext = true }

[[tables]]
path = "*/customers"
[tables.columns]
name = "crm"
"""
POLICY = Policy(
    ["ssn", "address.*"], True, footer_key="footer", default="encrypt",
    columns={"ssn": "pii", "*.street": ColumnRule("pii", {"fpp": 0.001}),
             "email": {"bloom_filter": True, "plaintext": False},
             "amount": ColumnRule(plaintext=True)},
    tables=[TableRules("*/customers", columns={"name": "crm"})])


# --- which rule wins -----------------------------------------------------------------------------

def key_of(path, columns=(), **options):
    return Policy(columns=dict(columns), **options).column(path).key


def test_the_name_itself_wins_over_groups_over_patterns_over_the_star():
    rules = {"a.b.c": "leaf", "a.b": "deep", "a": "group", "*.c": "pattern", "*": "star"}
    while rules:
        first = next(iter(rules))
        assert key_of("a.b.c", rules) == key_of("A.B.C", rules) == rules.pop(first)
    assert key_of("a.b.c") is None


def test_a_rule_of_a_table_wins_over_every_general_rule():
    policy = Policy(columns={"ssn": "pii"}, tables=[TableRules("people", columns={"s*": "crm"})])
    assert policy.for_path("/lake/people/a.parquet").column("ssn").key == "crm"
    assert policy.for_path("/lake/other/a.parquet").column("ssn").key == "pii"


def test_two_keys_of_equal_rank_are_an_error_that_names_both_rules():
    policy = Policy(columns={"*.street": "pii", "home.*": "crm", "home.zip": "zip"})
    with pytest.raises(PolicyError) as raised:
        policy.column("home.street")
    assert raised.value.column == "home.street"
    assert all(word in str(raised.value) for word in ("'*.street'", "pii", "'home.*'", "crm"))
    assert policy.column("home.zip").key == "zip" and policy.column("x.street").key == "pii"


@pytest.mark.parametrize("columns", [
    {"a": "k", "A": "l"}, {"a?": "k", "?b": {"plaintext": True}},
    {"a?": {"plaintext": False}, "?b": {"plaintext": True}},
    {"a?": {"bloom_filter": True}, "?b": {"bloom_filter": False}}], ids=str)
def test_rules_of_equal_rank_must_not_contradict_each_other(columns):
    with pytest.raises(PolicyError, match="contradict"):
        Policy(columns=columns).column("ab" if "a?" in columns else "a")


def test_rules_of_equal_rank_that_agree_are_one():
    policy = Policy(["a?"], columns={"?b": "k", "ab*": ColumnRule("k", True)})
    found = policy.column("ab")
    assert found.encrypted and found.key == "k" and found.bloom_filter == BloomFilterOptions()


def test_a_rule_for_a_filter_leaves_the_key_of_the_group():
    policy = Policy(columns={"customer": "crm", "customer.email": {"bloom_filter": True}})
    found = policy.column("customer.email")
    assert (found.encrypted, found.key, found.bloom_filter) == (True, "crm", BloomFilterOptions())
    assert found.rule == "'customer' in columns"
    assert found.filter_rule == "'customer.email' in columns"


def test_a_name_that_must_be_encrypted_gets_the_key_of_a_wider_rule():
    assert key_of("ssn", {"s*": "pii"}, sensitive=["ssn"]) == "pii"
    assert Policy(["ssn"], columns={"s*": {"plaintext": True}, "*": "k"}).column("ssn") \
        == ColumnPolicy("ssn", True, None, rule="'ssn' in sensitive")


def test_an_exception_under_a_wider_rule():
    policy = Policy(["address.*"], default="encrypt", columns={
        "address.country": {"plaintext": True}, "amount": {"plaintext": True}})
    assert [policy.is_sensitive(path) for path in
            ("address.country", "address.city", "amount", "other")] == [False, True, False, True]


NAMES = st.sampled_from(["a", "b", "a.b", "a.c", "a.b.c", "*", "*.c", "a.*", "?", "A.[bc]", "x"])
RULES = st.builds(ColumnRule, st.sampled_from(["k", "l"]), st.sampled_from([None, True])) \
    | st.builds(ColumnRule, bloom_filter=st.sampled_from([True, False, {"fpp": 0.1}])) \
    | st.builds(ColumnRule, plaintext=st.booleans())
SCOPES = st.tuples(st.lists(NAMES, max_size=2), st.dictionaries(NAMES, RULES, max_size=3))


def plain_rank(name, path):
    """Return how closely a name fits a column; None if it does not."""
    name, path = name.lower(), path.lower()
    if name == path:
        return 1000
    if path.startswith(f"{name}."):
        return 100 + len(name)
    if fnmatchcase(path, name) or fnmatchcase(path, f"{name}.*"):
        return 0 if name == "*" else 1
    return None


def plain_evaluation(policy, path):
    """Return (encrypted, key, filter), from all rules in one sorted list; None: contradiction."""
    rules = []
    for scope, owner in [(1, table) for table in policy.tables] + [(0, policy)]:
        named = [(name, ColumnRule(plaintext=False)) for name in owner.sensitive]
        rules += [((scope, rank), rule) for name, rule in [*named, *owner.columns.items()]
                  if (rank := plain_rank(name, path)) is not None]
    demanded, key, is_open, filter_ = False, None, False, None
    for rank in sorted({rank for rank, _ in rules}, reverse=True):
        level = [rule for other, rule in rules if other == rank]
        if filter_ is None:
            found = {str(rule.bloom_filter): rule.bloom_filter for rule in level
                     if rule.bloom_filter is not None}
            if len(found) > 1:
                return None
            filter_ = next(iter(found.values()), None)
        if key is None and not is_open:
            keys = {rule.key for rule in level if rule.key is not None}
            demands = bool(keys) or any(rule.plaintext is False for rule in level)
            is_open = any(rule.plaintext for rule in level)
            if len(keys) > 1 or (is_open and demands):
                return None
            demanded, key = demanded or demands, next(iter(keys), None)
    if not demanded and not is_open:
        demanded = policy.default == "encrypt"
    return demanded, key, filter_


@pytest.mark.slow
@given(SCOPES, st.lists(SCOPES, max_size=2), st.sampled_from(["open", "encrypt"]),
       st.sampled_from(["a", "b", "a.b", "a.c", "a.b.c", "x.c", "B", "y"]))
@examples(500)
def test_the_order_of_rules_is_that_of_a_plain_evaluation(general, tables, default, path):
    policy = Policy(general[0], columns=general[1], default=default, tables=[
        TableRules("*", *scope) for scope in tables if any(scope)])
    expected = plain_evaluation(policy, path)
    if expected is None:
        with pytest.raises(PolicyError, match="contradict"):
            policy.column(path)
    else:
        found = policy.column(path)
        assert (found.encrypted, found.key, found.bloom_filter) == expected


# --- names within lists --------------------------------------------------------------------------

@pytest.mark.parametrize("other", ["tags.list.item", "tags.bag.array_element", "tags.array",
                                   "tags"])
def test_other_writers_names_of_list_groups_do_not_escape(other):
    policy = Policy(columns={"tags.list.element": "pii"})
    found = policy.columns_of([other, "city"], {other})
    assert found[other].key == "pii" and not found["city"].encrypted
    assert not policy.columns_of(["tags.list.element", other], {other})[other].encrypted \
        or other == "tags.list.element"


@pytest.mark.slow
def test_deep_schemas_take_little_memory():
    """The paths of their groups take a hundred times as much as those of their columns."""
    paths = [".".join([f"{number}group"] * 199 + ["leaf"]) for number in range(200)]
    policy = Policy(["a.b.c", f"{paths[0]}.list.element"], columns={"x.y": "pii", "*.z": "pii"})
    tracemalloc.start()
    try:
        found = policy.columns_of(paths)
        assert tracemalloc.get_traced_memory()[1] < 2 * sum(map(len, paths))
    finally:
        tracemalloc.stop()
    assert [path for path in paths if found[path].encrypted] == paths[:1]


def test_a_field_of_a_struct_is_not_taken_for_another():
    policy = Policy(["home.zip"])
    assert not policy.columns_of(["home.street"])["home.street"].encrypted


# --- paths ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("pattern", "path", "applies"), [
    ("*/customers", "/lake/customers/a.parquet", True),
    ("*/customers", "/lake/customers", True),
    ("customers", "/lake/customers/day=1/a.parquet", True),
    ("lake/customers", "s3://bucket/lake/customers/a.parquet", True),
    ("s3://bucket/customers", "bucket/customers/a.parquet", True),
    ("s3://bucket/customers", "/bucket/customers/a.parquet", True),
    ("/lake/customers", "/lake/x/../customers//a.parquet", True),
    ("/lake/customers/", "file:///lake/customers/a.parquet", True),
    ("*.parquet", "/lake/a.parquet", True),
    ("*", "/anything", True),
    ("/", "/anything", True),
    ("file:///", "/lake/a.parquet", True),
    ("file:/lake/customers", "/lake/customers/a.parquet", True),
    ("file:/lake/customers", "/x/lake/customers/a.parquet", False),
    ("/lake/customers", "file:/lake/customers/a.parquet", True),
    ("dbfs:/lake/customers", "/lake/customers/a.parquet", True),
    ("customers", "/lake/customers2/a.parquet", False),
    ("customers", "/lake/Customers/a.parquet", False),
    ("/customers", "/lake/customers/a.parquet", False),
    ("s3://bucket/customers", "s3://other/customers/a.parquet", False)])
def test_the_rules_of_a_table_apply_to_its_folder(pattern, path, applies):
    policy = Policy(tables=[TableRules(pattern, ["ssn"])])
    assert policy.for_path(path).is_sensitive("ssn") == applies


def test_rules_by_path_are_not_lost_where_the_path_is_not_known():
    for ask in (lambda: POLICY.column("ssn"), lambda: POLICY.columns_of(["ssn"]),
                lambda: POLICY.for_path(None)):
        with pytest.raises(PolicyError, match="for_path"):
            ask()


def test_a_policy_for_a_path_is_a_policy_without_paths():
    own = POLICY.for_path("/lake/customers/a.parquet")
    assert own == own.for_path(None) == own.for_path("/x") == Policy.from_toml(own.to_toml())
    assert own.column("name").key == "crm"
    assert own.column("name").rule == "'name' in columns of table '*/customers'"
    assert POLICY.for_path("/x").tables == ()


def test_a_name_means_the_same_whatever_follows_it():
    """A capital sigma has two lower cases: one at the end of a word, another within it."""
    policy = Policy(["ΟΔΟΣ", "*Σ.x"])
    for path in ("ΟΔΟΣ", "ΟΔΟΣ.b", "οδοσ.b", "οδος.b", "ΑΣ.x", "ας.x"):
        assert policy.is_sensitive(path), path
    assert policy.rule_for_partition("οδοσ") is not None
    assert not policy.is_sensitive("ΟΔΟ.b")


# --- as text -------------------------------------------------------------------------------------

def test_the_text_and_the_object_say_the_same(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(TEXT)
    assert Policy.read(path) == Policy.read(str(path)) == Policy.from_toml(TEXT) == POLICY
    assert hash(Policy.from_toml(TEXT)) == hash(POLICY)


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
OPTIONS = st.none() | st.booleans() | st.builds(
    BloomFilterOptions, st.floats(1e-9, 0.5), st.none() | st.integers(0, 2**62),
    st.none() | st.integers(32, 2**20))
ANY_RULES = st.builds(ColumnRule, TEXTS, OPTIONS) \
    | st.builds(ColumnRule, bloom_filter=st.booleans()) \
    | st.builds(ColumnRule, bloom_filter=OPTIONS, plaintext=st.booleans())
ANY_COLUMNS = st.dictionaries(TEXTS, ANY_RULES, max_size=3)


@pytest.mark.slow
@given(st.lists(TEXTS, max_size=3), st.none() | TEXTS, ANY_COLUMNS,
       st.lists(st.builds(TableRules, TEXTS, st.lists(TEXTS, min_size=1, max_size=2), ANY_COLUMNS,
                          st.none() | TEXTS), max_size=2), st.none() | st.dates())
@examples(150)
def test_text_and_pickle_lose_nothing(sensitive, footer_key, columns, tables, until):
    policy = Policy(sensitive, footer_key=footer_key, columns=columns, tables=tables,
                    accept_plaintext_until=until)
    assert pickle.loads(pickle.dumps(policy)) == policy == Policy.from_toml(policy.to_toml())
    assert Policy.from_toml(policy.to_toml()).to_toml() == policy.to_toml()


def test_columns_may_have_the_names_of_settings():
    policy = Policy(columns={"default": "encrypt", "footer_key": "pii"})
    assert Policy.from_toml(policy.to_toml()) == policy
    policy = Policy.from_toml('[columns]\ndefault = "pii"\nfooter_key = { key = "pii" }')
    assert policy.column("default").key == policy.column("footer_key").key == "pii"


@for_each(("text", "words"), [
    ("", "sensitive"), ("sensitive = []", "list columns"), ("sensitive = 'ssn'", "list"),
    ("sensitive = [1]", "text"), ("sensitive = ['']", "empty"), ("nonsense", "TOML"),
    ("sensitiv = ['a']", "'sensitiv'"), ("sensitive = ['a']\nencrypted_foter = true", "foter"),
    ("sensitive = ['a']\nencrypted_footer = 1", "encrypted_footer"),
    ("default = 'closed'", "default"), ("default = ['encrypt']", "default"),
    ("footer_key = 'k'", "sensitive"), ("footer_key = ''\nsensitive = ['a']", "footer_key"),
    ("footer_key = 1\nsensitive = ['a']", "footer_key"),
    ("columns = 1", "columns"), ("columns = ['ssn']", "columns"),
    ("[columns]\na = 1", "'a'"), ("[columns]\na = ''", "'a'"), ("[columns]\na = {}", "nothing"),
    ("[columns]\na = { kye = 'k' }", "kye"), ("[columns]\na = ['k']", "'a'"),
    ("[columns]\na.b = 'k'", "no setting 'b'.*in quotes"),
    ("[columns]\na.key = 'k'\na.b.c = 'k'", "no setting 'b'.*in quotes"),
    ("[columns]\na = 'k'\ndefault = 'encrypt'", "default is below .columns.*move it above"),
    ("[columns]\na = 'k'\ndefault = 'open'", "default is below .columns.*move it above"),
    ("[columns]\na = 'k'\nfooter_key = 'k'", "footer_key is below .columns.*move it above"),
    ("[[tables]]\npath = 'x'\n[tables.columns]\na = 'k'\ndefault = 'encrypt'", "move it above"),
    ("[columns]\na = { key = 'k', plaintext = true }", "plaintext"),
    ("accept_plaintext_until = 2027-01-31", "no rules"),
    ("sensitive = ['a']\naccept_plaintext_until = '2027-01-31'", "date, without quotes"),
    ("sensitive = ['a']\naccept_plaintext_until = 2027-01-31T00:00:00", "date, without quotes"),
    ("[columns]\na = { plaintext = 1 }", "plaintext"),
    ("[columns]\na = { bloom_filter = 1 }", "bloom_filter"),
    ("[columns]\na = { bloom_filter = { fp = 0.1 } }", "'fp'"),
    ("[columns]\na = { bloom_filter = { fpp = 2 } }", "bloom_filter"),
    ("[columns]\na = { bloom_filter = { fpp = nan } }", "bloom_filter"),
    ("[columns]\na = { bloom_filter = { fpp = '0.1' } }", "bloom_filter"),
    ("[columns]\na = { bloom_filter = { ndv = 1.5 } }", "bloom_filter"),
    ("[columns]\na = { bloom_filter = { ndv = inf } }", "bloom_filter"),
    (f"[columns]\na = {{ bloom_filter = {{ ndv = {10**4000} }} }}", "bloom_filter"),
    (f"[columns]\na = {{ bloom_filter = {{ ndv = {'9' * 5000} }} }}", "TOML"),
    (f"[columns]\na = {{ bloom_filter = {{ max_bytes = {2**40} }} }}", "max_bytes"),
    ("tables = 1", "tables"), ("[tables]\npath = 'x'", "tables"), ("tables = [1]", "tables"),
    ("[[tables]]\nsensitive = ['a']", "path"), ("[[tables]]\npath = 'x'", "no rules"),
    ("[[tables]]\npath = 1\nsensitive = ['a']", "path"),
    ("[[tables]]\npath = 'x'\nsensitive = ['a']\ndefault = 'open'", "default"),
    ("sensitive = " + "[" * 100_000, "TOML"), ("a = " + "{a = " * 100_000, "TOML"),
    (".".join("a" * 100_000) + " = 1", "deep"), ("[" + ".".join(["'a'"] * 50_000) + "]", "deep"),
    ("a" * 1_000_000, "TOML"), ('a = "' + '\\"' * 400_000, "TOML"), ("'" * 999_999, "TOML"),
    ("a " * 400_000, "TOML"), ("# " + "x" * 2**20, "bytes"),
    ('sensitive = ["\\ud800"]', "TOML"), ("a = 1\na = 2", "TOML")])
def test_what_is_not_a_policy(tmp_path, text, words):
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(PolicyError, match=words) as raised:
        Policy.read(path)
    assert raised.value.file == str(path) and len(str(raised.value)) < 2000


def test_a_large_file_is_not_read_in_half(tmp_path):
    comment = "# " + "é" * 98 + "\n"  # fewer characters than bytes
    for shift in (0, 1):  # the limit is in the middle of a character, or between two
        text = 'sensitive = ["a"]\n' + "#" * shift + "\n" + comment * 6000
        (tmp_path / "policy.toml").write_text(text + '[columns]\nssn = "pii"\n', "utf-8")
        with pytest.raises(PolicyError, match="at most 1,048,576 bytes"):
            Policy.read(tmp_path / "policy.toml")


def test_a_file_of_other_bytes_is_not_a_policy(tmp_path):
    path = tmp_path / "p.toml"
    for data in (b"\xff\xfe", b"\x00" * 100, b"sensitive = ['\x80']"):
        path.write_bytes(data)
        with pytest.raises(PolicyError):
            Policy.read(path)
    with pytest.raises(PolicyError, match="bytes"):
        Policy.read("/dev/zero")  # has no end
    with named_pipe(tmp_path / "pipe") as pipe, pytest.raises(OSError, match="named pipe"):
        Policy.read(pipe)


@pytest.mark.parametrize("arguments", [
    {"sensitive": "ssn"}, {"sensitive": [1]}, {"sensitive": ["\ud800"]}, {"encrypted_footer": 1},
    {"default": True}, {"columns": ["ssn"]}, {"columns": {1: "k"}}, {"tables": ["x"]},
    {"tables": "x"}, {"tables": {}}, {"footer_key": b"k"}], ids=str)
def test_arguments_are_checked(arguments):
    with pytest.raises(PolicyError):
        Policy(**arguments)
    assert issubclass(PolicyError, ValueError)


def test_column_rules_need_no_pyarrow():
    """The part of the interface that works on dotted paths."""
    code = ("import sys; sys.modules['pyarrow'] = None\n"
            "from secure_bloom.policy import Policy\n"
            "policy = Policy.from_toml('[columns]\\nssn = \"pii\"')\n"
            "print(policy.columns_of(['ssn'])['ssn'].key)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "pii\n", done.stderr


def test_names_without_a_column():
    policy = Policy(["ssn", "a.*"], columns={"b": "k", "c": {"plaintext": True}, "*.x": "k"})
    assert policy.without_match(["SSN", "a.b"]) == ["b", "*.x"]


def test_the_words_of_an_encryption_configuration_are_words_of_a_policy_too():
    assert Policy(default="footer key") == Policy(default="encrypt")
    assert Policy.from_toml('default = "footer key"').is_sensitive("anything")
    assert Policy.from_toml('default = "plaintext"') == Policy()
