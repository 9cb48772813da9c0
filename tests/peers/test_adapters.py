"""The peers behind the protocol of ``vectors/README.md``."""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest
import xxhash
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import secure_bloom
from secure_bloom.keys import ExplicitKeys, InMemoryKms
from tests.peers.adapter import FETCHED, NAMES
from tests.peers.fixtures import adapter_command
from tests.peers.process import LineProcess

PEERS = {name: pytest.param(name, marks=pytest.mark.fetched if name in FETCHED else ())
         for name in NAMES}
HEADER = "15401c1c00001c1c00001c1c000000"
BLOCK = "0100000001000000010000000100000001000000010000000100000001000000"
KEY, COLUMN_KEY = b"0123456789012345", b"1234567890123450"
FIRST, ABSENT = ((1).to_bytes(8, "little").hex(), (2**40).to_bytes(8, "little").hex())


@pytest.fixture(scope="module", params=PEERS.values())
def adapter(request: pytest.FixtureRequest) -> Iterator[LineProcess]:
    """A running adapter."""
    process = LineProcess(adapter_command(request.param))
    yield process
    process.close()


#: arrow-rs has no key tools, and no public function for modules; it does not decrypt filters
with_modules = pytest.mark.parametrize(
    "adapter", [PEERS[name] for name in NAMES if name != "arrow-rs"], indirect=True
)


def ask(adapter: LineProcess, layer: str, operation: str, **fields: object) -> str:
    return adapter.ask("\t".join([layer, operation, *(f"{k}={v}" for k, v in fields.items())]))


def test_hashes_and_bitsets(adapter: LineProcess) -> None:
    digest = xxhash.xxh64(b"abc").hexdigest()
    text = {"physical_type": "BYTE_ARRAY"}
    assert ask(adapter, "xxh64", "hash", **text, plain="616263") == f"hashed\thash={digest}"
    zero = {"hash": "0" * 16}
    assert ask(adapter, "blocks", "mask", **zero) == f"computed\tblock={BLOCK}"
    assert ask(adapter, "blocks", "insert", **zero, block="00" * 32) == f"computed\tblock={BLOCK}"
    assert ask(adapter, "blocks", "check", **zero, block=BLOCK) == "present"
    assert ask(adapter, "blocks", "check", **zero, block="00" * 32) == "absent"
    reply = ask(adapter, "blocks", "index", hash="8" + "0" * 15, num_blocks=4)
    assert reply == "computed\tindex=2"


def test_a_filter_has_what_was_built_into_it(adapter: LineProcess) -> None:
    text = {"physical_type": "BYTE_ARRAY"}
    built = ask(adapter, "bitsets", "build", **text, num_bytes=64, values="616263,null,")
    outcome, bitset = built.split("\tbitset=")
    assert (outcome, len(bitset)) == ("built", 128)
    reply = ask(adapter, "bitsets", "check", **text, bitset=bitset, values="616263,646566,")
    assert reply == "checked\tanswers=true,false,"


def test_headers_and_sizes(adapter: LineProcess) -> None:
    assert ask(adapter, "headers", "encode", num_bytes=32) == f"encoded\theader={HEADER}"
    decoded = "decoded\tnum_bytes=32\theader_size=15"
    for rest in ("", "ff" * 3, "ff" * 32, "ff" * 40):
        assert ask(adapter, "headers", "decode", data=HEADER + rest) == decoded
    assert ask(adapter, "headers", "decode", data=HEADER[:-2]) == "malformed"
    unknown = HEADER.replace("1c1c", "1c2c", 1)
    assert ask(adapter, "headers", "decode", data=unknown) == "unsupported"
    size = {"ndv": 1000, "power_of_two": "true"}
    assert ask(adapter, "sizing", "blocks", **size, fpp=0.01) == "computed\tnum_blocks=64"
    assert ask(adapter, "sizing", "blocks", **size, fpp=0) == "invalid_fpp"


@with_modules
def test_modules(adapter: LineProcess) -> None:
    place = {"aad_prefix": "", "aad_file_unique": "ff", "module_type": 8}
    built = ask(adapter, "aad", "build", **place, row_group=1, column=258)
    assert built == "built\taad=ff0801000201"
    keys = {"key": KEY.hex(), "aad": "ff00"}
    outcome, module = ask(
        adapter, "modules", "encrypt", **keys, nonce="00" * 12, plaintext="616263"
    ).split("\tmodule=")
    assert (outcome, module[:32]) == ("encrypted", "1f000000" + "00" * 12)
    opened = ask(adapter, "modules", "decrypt", **keys, module=module)
    assert opened == "decrypted\tplaintext=616263"
    for wrong in (module[:-2], module[:-2] + f"{int(module[-2:], 16) ^ 1:02x}", ""):
        assert ask(adapter, "modules", "decrypt", **keys, module=wrong) == "authentication_failed"
    assert ask(adapter, "modules", "decrypt", key="00", aad="", module=module) == "invalid_key"
    outcome, signature = ask(
        adapter, "modules", "sign", **keys, nonce="00" * 12, footer="616263"
    ).split("\tsignature=")
    assert (outcome, signature) == ("signed", module[8:32] + module[-32:])
    signed = {**keys, "signature": signature}
    assert ask(adapter, "modules", "verify", **signed, footer="616263") == "verified"
    assert ask(adapter, "modules", "verify", **signed, footer="616264") == "authentication_failed"


@with_modules
def test_key_material(adapter: LineProcess) -> None:
    wrapped = bytes(12) + AESGCM(KEY).encrypt(bytes(12), COLUMN_KEY, b"kf")
    material = {
        "keyMaterialType": "PKMT1",
        "internalStorage": True,
        "isFooterKey": False,
        "masterKeyID": "kf",
        "wrappedDEK": base64.b64encode(wrapped).decode(),
        "doubleWrapping": False,
    }
    fields = {"key_metadata": json.dumps(material).encode().hex()}
    known = {"master_keys": f"kf:{KEY.hex()},"}
    reply = ask(adapter, "key-material", "unwrap", **fields, **known)
    assert reply == f"unwrapped\tdata_key={COLUMN_KEY.hex()}\tmaster_key=kf"
    assert ask(adapter, "key-material", "unwrap", **fields, master_keys="") == "key_not_found"
    wrong = {"master_keys": f"kf:{COLUMN_KEY.hex()},"}
    assert ask(adapter, "key-material", "unwrap", **fields, **wrong) == "unwrap_failed"
    empty = {"key_metadata": b"{}".hex()}
    assert ask(adapter, "key-material", "unwrap", **empty, **known) == "malformed"


@pytest.mark.fetched
@pytest.mark.parametrize("adapter", ["arrow-rs"], indirect=True)
def test_arrow_rs_has_no_modules_and_key_tools(adapter: LineProcess) -> None:
    for layer, operation in (("modules", "encrypt"), ("aad", "build"), ("key-material", "unwrap")):
        assert ask(adapter, layer, operation).startswith("skip\treason=arrow-rs has no ")


def test_what_a_peer_does_not_have_is_skipped(adapter: LineProcess) -> None:
    assert ask(adapter, "sizing", "fpp", num_blocks=1, ndv=1).startswith("skip\treason=")
    plain = {"physical_type": "INT32", "plain": "00"}
    assert ask(adapter, "xxh64", "hash", **plain).startswith("skip\treason=")


@pytest.mark.parametrize(
    "line", ["", "xxh64", "xxh64\tnonsense", "blocks\tmask", "blocks\tmask\tx"]
)
def test_a_bad_request_is_an_error_and_the_next_is_answered(
    adapter: LineProcess, line: str
) -> None:
    assert adapter.ask(line).startswith("error\tclass=")
    assert ask(adapter, "headers", "encode", num_bytes=32) == f"encoded\theader={HEADER}"


TABLE = pa.table({"id": pa.array([1, 2, 3]), "open": pa.array([4, 5, 6])})
MASTER_KEYS = {"kf": KEY, "kc1": COLUMN_KEY}
PROBES = f"0:id:{FIRST},0:id:{ABSENT},"


def write(path: Path, **keys: object) -> str:
    secure_bloom.write_table(TABLE, path, bloom_filters={"id": True, "open": True}, **keys)
    return str(path)


@pytest.fixture(scope="module")
def uniform(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file whose columns all have the footer key."""
    path = tmp_path_factory.mktemp("files") / "uniform.parquet"
    return write(path, encryption=secure_bloom.UniformKey(KEY))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with key material, in which one column is encrypted."""
    path = tmp_path_factory.mktemp("files") / "tools.parquet"
    keys = pe.EncryptionConfiguration("kf", column_keys={"kc1": ["id"]})
    return write(path, encryption=keys, kms=InMemoryKms(MASTER_KEYS))


def described(path: str, columns: dict[str, str], keys: object) -> str:
    """The filters as in a reply."""
    with secure_bloom.ParquetFile(path, keys) as file:
        bitsets = {column: file.read_bloom_filter(0, column).bitset for column in columns}
    return "".join(
        f"0:{column}:{columns[column]}:{len(bitset)}:{hashlib.sha256(bitset).hexdigest()},"
        for column, bitset in bitsets.items()
    )


@with_modules
def test_files_with_data_keys(adapter: LineProcess, uniform: str) -> None:
    keys = ExplicitKeys(KEY, {})
    filters = described(uniform, {"id": "encrypted", "open": "encrypted"}, keys)
    reply = ask(adapter, "files", "read", path=uniform, footer_key=KEY.hex(), probes=PROBES)
    assert reply == f"read\tfilters={filters}\tanswers=true,false,"
    wrong = ask(adapter, "files", "read", path=uniform, footer_key=COLUMN_KEY.hex(), probes="")
    assert wrong == "authentication_failed\tfilters=\tanswers=\tat=footer"
    none = ask(adapter, "files", "read", path=uniform, probes="")
    assert none == "key_unavailable\tfilters=\tanswers=\tat=footer"


@with_modules
def test_files_with_master_keys(adapter: LineProcess, tools: str) -> None:
    kms = InMemoryKms(MASTER_KEYS)
    fields = {"path": tools, "probes": PROBES}
    filters = described(tools, {"id": "encrypted", "open": "plain"}, kms)
    both = "".join(f"{name}:{key.hex()}," for name, key in MASTER_KEYS.items())
    reply = ask(adapter, "files", "read", **fields, master_keys=both)
    assert reply == f"read\tfilters={filters}\tanswers=true,false,"
    filters = described(tools, {"open": "plain"}, kms)
    reply = ask(adapter, "files", "read", **fields, master_keys=f"kf:{KEY.hex()},")
    assert reply == f"key_unavailable\tfilters={filters}\tanswers=unknown,unknown,\tat=0:id"


def test_a_file_that_is_none(adapter: LineProcess, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    reply = ask(adapter, "files", "read", path=path, probes=f"0:id:{FIRST},")
    assert reply == "malformed\tfilters=\tanswers=unknown,\tat=footer"
