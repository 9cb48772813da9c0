"""No key is left behind by runs that fail: in output, logs, tracebacks, files, environments."""

import base64
import os
import re
import subprocess
import sys

import pytest

RUN = '''
import json, logging, os, signal, subprocess, sys, traceback
import pyarrow as pa
import secure_bloom
from secure_bloom import EncryptionConfiguration, ExplicitKeys, ParquetFile, UniformKey
from secure_bloom.keys import InMemoryKms, KeyEncryptionKeys, Keyring, kek, rotate_master_keys
from secure_bloom import encryption as encryption_module

logging.basicConfig(level=logging.DEBUG)
secrets = os.fdopen(int(sys.argv[1]), "w")  # to the test, and to nobody else

def tell(*keys):
    for key in keys:
        print(key.hex(), file=secrets, flush=True)

def spy(owner, name, position):
    real = getattr(owner, name)
    def call(*args):
        tell(args[position])
        return real(*args)
    setattr(owner, name, call)

spy(InMemoryKms, "wrap_key", 1)             # key-encryption keys, and data keys
spy(kek, "wrap_locally", 0)                 # key-encryption keys
spy(kek, "wrap_locally", 1)                 # data keys

master = {name: os.urandom(16) for name in ("footer", "pii", "new")}
uniform = os.urandom(16)
tell(*master.values(), uniform)
ring = Keyring.create("ring.json", "a passphrase")
for name, key in master.items():
    ring.add(name, key)

class Failing(InMemoryKms):
    def __init__(self, fail, at=1):
        super().__init__(master)
        self.fail, self.calls, self.at = fail, 0, at
    def wrap_key(self, key, name):
        wrapped = super().wrap_key(key, name)
        if self.fail == "wrap":
            raise ConnectionError("the KMS is down")
        return wrapped
    def unwrap_key(self, wrapped, name):
        key = super().unwrap_key(wrapped, name)
        self.calls += 1
        if self.fail == "unwrap" and self.calls >= self.at:
            raise ConnectionError("the KMS is down")
        return key

table = pa.table({"ssn": [str(i) for i in range(1000)], "n": range(1000)})
config = EncryptionConfiguration("footer", {"pii": ["ssn"]})
single = EncryptionConfiguration("footer", {"pii": ["ssn"]}, double_wrapping=False)

def write(path, kms, encryption=config, **options):
    secure_bloom.write_table(table, path, bloom_filters={"ssn": True}, encryption=encryption,
                             keys=kms, **options)

def damage(path):
    data = bytearray(open(path, "rb").read())
    data[200] ^= 1
    data[-60] ^= 1
    open(path, "wb").write(data)

good = InMemoryKms(master)
wrong = InMemoryKms({name: bytes(16) for name in master})
for name, encryption in (("a", config), ("b", single)):
    write(name, good, encryption)
write("u", None, UniformKey(uniform))
write("c", good)
damage("c")

def show(value):
    try:
        print(repr(value))
    except AttributeError:
        pass  # it was never finished

def killed():
    if os.fork() == 0:
        writer = secure_bloom.ParquetWriter("killed", table.schema, bloom_filters={"ssn": True},
                                            encryption=config, keys=good)
        writer.write_table(table)
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()

def full_disk():
    import resource
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            write("full", good)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(0)
    os.wait()

attempts = [
    lambda: write("x", Failing("wrap")), lambda: write("x", Failing("wrap"), single),
    lambda: write("x", InMemoryKms({"footer": master["footer"]})),
    lambda: write("x", KeyEncryptionKeys(good, ["footer"])),
    lambda: write("x", good, EncryptionConfiguration("footer", {"pii": ["none"]})),
    lambda: write("x", good, no_such_option=1), lambda: write("no folder/x", good),
    lambda: write("x", good, UniformKey(uniform)), lambda: UniformKey(uniform + b"x"),
    lambda: ParquetFile("a", wrong), lambda: ParquetFile("a", Failing("unwrap")),
    lambda: ParquetFile("a", Failing("unwrap", 2)).read(),
    lambda: ParquetFile("b", Failing("unwrap", 2)).read(),
    lambda: ParquetFile("c", good).read(), lambda: secure_bloom.read_table("c", keys=good),
    lambda: ParquetFile("u", ExplicitKeys(bytes(16))),
    lambda: ParquetFile("u", ExplicitKeys(column_keys={"ssn": uniform + b"x"})),
    lambda: rotate_master_keys("a", Failing("wrap"), old="pii", new="new"),
    lambda: rotate_master_keys("c", good, old="pii", new="none"),
    lambda: Keyring("ring.json"), lambda: Keyring("ring.json", "wrong"),
    lambda: ring.add("pii", master["pii"]), lambda: ring.add("short", master["pii"] + b"x"),
    lambda: good.unwrap_key(good.wrap_key(uniform, "pii"), "new"),
    killed, full_disk,
    lambda: subprocess.run(["env"], check=True), lambda: subprocess.run(["false"], check=True),
]
for number, attempt in enumerate(attempts):
    try:
        attempt()
    except Exception:
        traceback.print_exc()
        for frame, _ in traceback.walk_tb(sys.exc_info()[2]):
            for value in list(frame.f_locals.values()):  # as tools that report errors show them
                if type(value).__module__.startswith("secure_bloom"):
                    show(value)
write("good", good)
print("finished", len(attempts))
'''


def forms(key: bytes) -> list[bytes]:
    """How a key may be written down."""
    shifted = [base64.b64encode(b"\0" * n + key)[(4 if n else 0):-4] for n in range(3)]
    return [key, key.hex().encode(), key.hex().upper().encode(), repr(key)[2:-1].encode(),
            base64.b64encode(key).rstrip(b"="), base64.urlsafe_b64encode(key).rstrip(b"="),
            str(list(key))[1:-1].encode(), *shifted]


def test_the_search_finds_keys():
    key = os.urandom(16)
    for text in (key, key.hex().encode(), repr({"k": key}).encode(), base64.b64encode(key),
                 base64.b64encode(b"x" + key), repr(list(key)).encode()):
        assert any(form in text for form in forms(key))


@pytest.mark.slow
def test_nothing_that_a_failing_run_leaves_holds_a_key(tmp_path):
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        process = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", RUN, str(writer)], cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)}, pass_fds=[writer], capture_output=True,
            check=False, timeout=120)
        os.close(writer)
        keys = {bytes.fromhex(line) for line in pipe.read().split()} - {b""}
    assert re.search(rb"finished \d+", process.stdout), process.stderr.decode()
    assert process.stderr.count(b"Traceback") > 20 and len(keys) > 15
    left = {"stdout": process.stdout, "stderr": process.stderr}
    left |= {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(name.endswith(".tmp") for name in left)  # of the process that was killed
    found = [name for name, content in left.items() for key in keys
             if any(form in content for form in forms(key))]
    assert not found


@pytest.mark.parametrize("module", ["secure_bloom", "secure_bloom.keys"])
def test_importing_needs_no_sdk(module):
    code = f"import sys, {module}; print([m for m in ('azure', 'boto3', 'google', 'numba', " \
           "'pkcs11', 'pyspark', 'requests') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True).stdout.strip() == "[]"
