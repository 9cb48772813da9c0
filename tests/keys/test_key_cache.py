"""One cache for each KMS client: how many calls, under threads, forks and failures."""

import gc
import multiprocessing
import pickle
import threading
import time
import weakref

import pyarrow as pa
import pytest

from secure_bloom import EncryptionConfiguration, ParquetFile, read_table, write_table
from secure_bloom.errors import (
    KeyExhaustedError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
)
from secure_bloom.keys import CachedKms, InMemoryKms, KeyEncryptionKeys
from secure_bloom.keys import cache as cache_module
from secure_bloom.keys.cache import cached
from secure_bloom.keys.kek import KeyEncryptionKey
from secure_bloom.keys.kms import unwrap_locally
from tests.keys.clock import Clock

MASTER, DATA = b"master key 16byt", b"the data key 16b"
COLUMNS = {"pii": ["ssn", "name"], "pay": ["salary"]}
FILTERS = dict.fromkeys(["ssn", "name", "salary"], True)
TABLE = pa.table({"ssn": ["1", "2"], "name": ["a", "b"], "salary": [1, 2], "id": [1, 2]})


class CountingKms(InMemoryKms):
    def __init__(self, keys=("footer", "pii", "pay"), delay=0.0):
        super().__init__(dict.fromkeys(keys, MASTER))
        self.wraps, self.unwraps, self.delay = [], [], delay

    def wrap_key(self, key_bytes, master_key_identifier):
        self.wraps.append(master_key_identifier)
        return super().wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        self.unwraps.append(master_key_identifier)
        time.sleep(self.delay)
        return super().unwrap_key(wrapped_key, master_key_identifier)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that have passed, for the cache."""
    clock = Clock()
    monkeypatch.setattr(cache_module, "time", clock)
    return clock


def in_threads(number, work):
    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- unwrapping ----------------------------------------------------------------------------------

def test_a_key_is_unwrapped_once_for_everyone_in_the_process():
    kms = CountingKms()
    wrapped = kms.wrap_key(DATA, "pii")
    assert [cached(kms).unwrap_key(wrapped, "pii") for _ in range(3)] == [DATA] * 3
    assert kms.unwraps == ["pii"]
    assert cached(CountingKms()).unwrap_key(wrapped, "pii") == DATA  # another client, its own cache


def test_a_key_is_kept_for_its_lifetime(clock):
    kms = CountingKms()
    client, wrapped = CachedKms(kms, lifetime=60), kms.wrap_key(DATA, "pii")
    for seconds, calls in [(0, 1), (59, 1), (2, 2), (59, 2), (61, 3)]:
        clock.now += seconds
        assert client.unwrap_key(wrapped, "pii") == DATA
        assert len(kms.unwraps) == calls


def test_expired_keys_are_dropped(clock):
    kms = CountingKms()
    client = CachedKms(kms, lifetime=60)
    for number in range(5):
        client.unwrap_key(kms.wrap_key(bytes([number]) * 16, "pii"), "pii")
    clock.now += 61
    client.unwrap_key(kms.wrap_key(DATA, "pii"), "pii")
    assert len(client._unwrapped._entries) == 1


def test_without_a_lifetime_every_call_goes_through():
    kms = CountingKms()
    client, wrapped = CachedKms(kms, lifetime=0), kms.wrap_key(DATA, "pii")
    assert [client.unwrap_key(wrapped, "pii") for _ in range(3)] == [DATA] * 3
    assert len(kms.unwraps) == 3
    assert client.key_encryption_key("pii", 16) is not client.key_encryption_key("pii", 16)


def test_threads_share_one_call_and_do_not_wait_for_other_keys():
    both = threading.Barrier(2, timeout=60)

    class Meeting(CountingKms):
        def unwrap_key(self, wrapped_key, master_key_identifier):
            both.wait()  # breaks unless the call for the other key comes meanwhile
            return super().unwrap_key(wrapped_key, master_key_identifier)

    kms = Meeting()
    client, found = CachedKms(kms), []
    wrapped = {name: kms.wrap_key(DATA, name) for name in ("pii", "pay")}
    names = iter(["pii"] * 8 + ["pay"] * 8)

    def work():
        name = next(names)
        found.append(client.unwrap_key(wrapped[name], name))

    in_threads(16, work)
    assert found == [DATA] * 16
    assert sorted(kms.unwraps) == ["pay", "pii"]


@pytest.mark.slow
def test_threads_share_a_failure_and_the_next_one_tries_again():
    class Failing(CountingKms):
        is_down = True

        def unwrap_key(self, wrapped_key, master_key_identifier):
            key = super().unwrap_key(wrapped_key, master_key_identifier)
            if self.is_down:
                raise KeyNotFoundError("no such key")
            return key

    kms, errors = Failing(delay=0.2), []
    client, wrapped = CachedKms(kms), kms.wrap_key(DATA, "pii")

    def work():
        try:
            client.unwrap_key(wrapped, "pii")
        except KeyNotFoundError as error:
            errors.append(error)

    in_threads(6, work)
    assert len(errors) == len(set(map(id, errors))) == 6  # each may add its own place to its own
    assert {str(error) for error in errors} == {"no such key"}
    assert len(kms.unwraps) < 6
    kms.is_down = False
    assert client.unwrap_key(wrapped, "pii") == DATA


def _unwrap_in_child(client, wrapped, kms, results):
    results.put((client.unwrap_key(wrapped, "pii") == DATA, len(kms.unwraps)))


def test_a_forked_process_starts_with_an_empty_cache():
    kms = CountingKms()
    client, wrapped = cached(kms), kms.wrap_key(DATA, "pii")
    client.unwrap_key(wrapped, "pii")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    client._unwrapped._lock.acquire()  # as if another thread were in the middle of it
    try:
        child = context.Process(target=_unwrap_in_child, args=(client, wrapped, kms, results))
        child.start()
        assert results.get(timeout=60) == (True, 2)
        child.join()
    finally:
        client._unwrapped._lock.release()


def test_what_is_no_key_is_refused():
    client = CachedKms(CountingKms())
    with pytest.raises(KeyUnwrapError, match="did not return a valid AES key"):
        client.unwrap_key(client.wrap_key(b"short", "pii"), "pii")


@pytest.mark.parametrize("answer", [None, "", b"", 5, "x" * 16, b"\xff"])
def test_what_a_kms_must_not_answer(answer, tmp_path):
    class Broken(CountingKms):
        def wrap_key(self, key_bytes, master_key_identifier):
            return answer

        def unwrap_key(self, wrapped_key, master_key_identifier):
            return answer

    with pytest.raises(KeyUnwrapError, match="'pii'"):
        CachedKms(Broken()).unwrap_key("AAAA", "pii")
    if answer == "x" * 16:
        return  # as good as any
    for double in (True, False):
        with pytest.raises(KeyRetrievalError, match="did not return a wrapped key"):
            write_table(TABLE, tmp_path / "x", bloom_filters={}, keys=Broken(),
                        encryption=configuration(double_wrapping=double))
    assert list(tmp_path.iterdir()) == []


def test_the_instance_of_a_kms_is_text(tmp_path):
    kms = CountingKms()
    kms.kms_instance_id = None
    with pytest.raises(TypeError, match="kms_instance_id"):
        write_table(TABLE, tmp_path / "x", bloom_filters={}, keys=kms, encryption=configuration())
    assert list(tmp_path.iterdir()) == []


def test_clients_that_are_equal_may_have_different_rights():
    class User(CountingKms):
        def __init__(self, may):
            super().__init__()
            self.may = may

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

        def unwrap_key(self, wrapped_key, master_key_identifier):
            if not self.may:
                raise KeyNotFoundError("not for you")
            return super().unwrap_key(wrapped_key, master_key_identifier)

    admin, guest = User(True), User(False)
    wrapped = admin.wrap_key(DATA, "pii")
    assert cached(admin).unwrap_key(wrapped, "pii") == DATA
    with pytest.raises(KeyNotFoundError):
        cached(guest).unwrap_key(wrapped, "pii")


def test_an_interrupt_does_not_block_the_next_call():
    class Interrupted(CountingKms):
        is_first = True

        def unwrap_key(self, wrapped_key, master_key_identifier):
            if self.is_first:
                self.is_first = False
                raise KeyboardInterrupt
            return super().unwrap_key(wrapped_key, master_key_identifier)

    kms = Interrupted()
    client, wrapped = CachedKms(kms), kms.wrap_key(DATA, "pii")
    with pytest.raises(KeyboardInterrupt):
        client.unwrap_key(wrapped, "pii")
    assert client.unwrap_key(wrapped, "pii") == DATA


def test_a_client_that_needs_keys_to_unwrap_one_waits_for_no_thread():
    """Two threads begin with different keys, each of which takes the other one, in a circle."""
    begun, errors = threading.Barrier(2, timeout=60), []

    class Circular(InMemoryKms):
        def unwrap_key(self, wrapped_key, master_key_identifier):
            if not getattr(own, "has_begun", False):
                own.has_begun = True
                begun.wait()
            return client.unwrap_key({"a": "b", "b": "a"}[wrapped_key], master_key_identifier)

    def ask(key):
        with pytest.raises(KeyRetrievalError, match="needs that key itself") as caught:
            client.unwrap_key(key, "k")
        errors.append(caught.value)

    own, client = threading.local(), CachedKms(Circular({"k": MASTER}))
    threads = [threading.Thread(target=ask, args=key, daemon=True) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 2


def test_a_kms_may_return_other_bytes():
    class Bytes(InMemoryKms):
        def wrap_key(self, key_bytes, master_key_identifier):
            return super().wrap_key(key_bytes, master_key_identifier).encode()

        def unwrap_key(self, wrapped_key, master_key_identifier):
            return bytearray(super().unwrap_key(wrapped_key, master_key_identifier))

    client = CachedKms(Bytes({"m": MASTER}))
    wrapped = client.wrap_key(DATA, "m")
    assert isinstance(wrapped, str)
    assert type(client.unwrap_key(wrapped, "m")) is bytes


@pytest.mark.slow
def test_a_cache_goes_with_its_client():
    kms = CountingKms()
    cached(kms).unwrap_key(kms.wrap_key(DATA, "pii"), "pii")
    gone = weakref.ref(kms)
    del kms
    gc.collect()
    assert gone() is None


def test_a_client_that_cannot_be_hashed_serves():
    class Unhashable(InMemoryKms):
        __hash__ = None

    kms = Unhashable({"m": MASTER})
    assert cached(kms).unwrap_key(kms.wrap_key(DATA, "m"), "m") == DATA


def test_no_key_is_pickled_or_shown():
    kms = CountingKms()
    client = CachedKms(kms, lifetime=60)
    client.unwrap_key(kms.wrap_key(DATA, "pii"), "pii")
    kek = client.key_encryption_key("pii", 16)
    assert DATA not in pickle.dumps(client) and kek.secret not in pickle.dumps(client)
    again = pickle.loads(pickle.dumps(client))
    assert again.lifetime == 60
    assert repr(client) == "<CachedKms of CountingKms>"
    assert repr(kek.secret) not in repr(kek)
    assert repr(KeyEncryptionKeys(kms, ["pii"])) == "<KeyEncryptionKeys under ['pii']>"


# --- key-encryption keys -------------------------------------------------------------------------

def configuration(**options):
    return EncryptionConfiguration("footer", COLUMNS, **options)


def test_files_of_one_process_share_their_keks(tmp_path, clock):
    kms = CountingKms()
    for number in range(3):
        write_table(TABLE, tmp_path / f"{number}.parquet", bloom_filters=FILTERS, keys=kms,
                    encryption=configuration())
    assert sorted(kms.wraps) == ["footer", "pay", "pii"]
    clock.now += 601
    write_table(TABLE, tmp_path / "4.parquet", bloom_filters=FILTERS, keys=kms,
                encryption=configuration())
    assert len(kms.wraps) == 6
    for seconds in (0, 0, 31):
        clock.now += seconds
        write_table(TABLE, tmp_path / "5.parquet", bloom_filters=FILTERS, keys=kms,
                    encryption=configuration(cache_lifetime=30, data_key_length_bits=256))
    assert len(kms.wraps) == 12


@pytest.mark.slow
def test_many_files_need_one_wrap_and_one_unwrap_for_each_master_key(tmp_path):
    writing, reading = CountingKms(["pii", "pay"]), CountingKms(["pii", "pay"])
    encryption = EncryptionConfiguration("pay", COLUMNS)
    keks = pickle.loads(pickle.dumps(KeyEncryptionKeys.for_encryption(encryption, writing)))
    for number in range(200):
        write_table(TABLE, tmp_path / f"{number}.parquet", bloom_filters=FILTERS, keys=keks,
                    encryption=encryption)
    assert sorted(writing.wraps) == ["pay", "pii"] and writing.unwraps == []
    assert read_table(tmp_path, keys=reading).num_rows == 400
    assert read_table(tmp_path, keys=reading, filters=[("ssn", "==", "1")]).num_rows == 200
    for path in list(tmp_path.iterdir())[:5]:
        assert ParquetFile(path, reading).read().equals(TABLE)
    assert sorted(reading.unwraps) == ["pay", "pii"] and reading.wraps == []


def test_keks_are_as_long_as_data_keys():
    for bits in (128, 192, 256):
        encryption, kms = configuration(data_key_length_bits=bits), CountingKms()
        kek = KeyEncryptionKeys.for_encryption(encryption, kms).key_encryption_key("pii", bits // 8)
        assert len(kms.unwrap_key(kek.wrapped_kek, "pii")) == bits // 8


def test_a_kek_lives_as_long_as_the_one_who_asks_wants(clock):
    client = CachedKms(CountingKms())
    first = client.key_encryption_key("pii", 16, 600)
    clock.now += 5
    assert client.key_encryption_key("pii", 16, 600) is first
    assert client.key_encryption_key("pii", 16, 4) is not first


def test_keks_do_not_serve_longer_data_keys():
    keks = KeyEncryptionKeys(CountingKms(), ["footer", "pii", "pay"])
    with pytest.raises(ValueError, match="data_key_length_bits"):
        write_table(TABLE, pa.BufferOutputStream(), bloom_filters={}, keys=keks,
                    encryption=configuration(data_key_length_bits=256))


def test_keks_of_a_kms_that_answers_bytes(tmp_path):
    class Bytes(CountingKms):
        def wrap_key(self, key_bytes, master_key_identifier):
            return super().wrap_key(key_bytes, master_key_identifier).encode()

    keks = KeyEncryptionKeys(Bytes(), ["footer", "pii", "pay"])
    write_table(TABLE, tmp_path / "x", bloom_filters={}, keys=keks, encryption=configuration())
    assert ParquetFile(tmp_path / "x", CountingKms()).read().equals(TABLE)


@pytest.mark.slow
def test_a_fork_while_a_key_is_wrapped():
    kek = KeyEncryptionKey.make(CountingKms(), "pii", 16)
    context = multiprocessing.get_context("fork")
    results, stop = context.Queue(), threading.Event()

    def work():
        while not stop.is_set():
            kek.wrap(DATA)

    thread = threading.Thread(target=work)
    thread.start()
    children = [context.Process(target=lambda: results.put(kek.wrap(DATA))) for _ in range(5)]
    for child in children:
        child.start()
    assert len([results.get(timeout=60) for _ in children]) == 5
    stop.set()
    thread.join()
    for child in children:
        child.join()


def test_without_a_kek_for_a_master_key():
    keks = KeyEncryptionKeys(CountingKms(), ["footer", "pii"])
    with pytest.raises(KeyNotFoundError, match="'pay'; available: footer, pii"):
        write_table(TABLE, pa.BufferOutputStream(), bloom_filters={}, keys=keks,
                    encryption=configuration())


def test_single_wrapping_needs_a_kms():
    keks = KeyEncryptionKeys(CountingKms(), ["footer", "pii", "pay"])
    with pytest.raises(TypeError, match="double_wrapping"):
        write_table(TABLE, pa.BufferOutputStream(), bloom_filters={}, keys=keks,
                    encryption=configuration(double_wrapping=False))


def test_a_kek_has_a_limited_number_of_invocations(monkeypatch):
    monkeypatch.setattr("secure_bloom.keys.kek.MAX_INVOCATIONS", 2)
    kek = KeyEncryptionKey.make(CountingKms(), "pii", 16)
    wrapped = kek.wrap(DATA)
    kek.wrap(DATA)
    with pytest.raises(KeyExhaustedError, match="'pii'"):
        kek.wrap(DATA)
    assert unwrap_locally(kek.secret, wrapped, kek.kek_id) == DATA
