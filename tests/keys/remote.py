"""What holds for the client of every KMS that is reached over a network.

The tests of a client import all of this, and have a fixture ``service``.
"""

import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from secure_bloom.errors import (
    KeyNotFoundError,
    KeyUnwrapError,
    KmsUnavailableError,
    MissingExtraError,
)
from secure_bloom.keys import remote
from secure_bloom.keys.remote import RemoteKms, decoded
from tests.cases import for_each
from tests.keys.checks import (
    KEY,
    connections_of_its_own_after_a_fork,
    files_round_trip,
    in_threads,
    other_processes,
    paused,
    refused,
    round_trip,
)
from tests.peers.loopback import Loopback, answer, slow

__all__ = ["test_a_fork_opens_connections_of_its_own", "test_a_server_that_never_ends_its_response",
           "test_answers_of_something_else", "test_down_and_up_again", "test_failing_for_good",
           "test_files", "test_limits_of_years",
           "test_limits_that_are_refused", "test_names_that_no_key_can_have_are_not_sent",
           "test_other_processes",
           "test_responses_that_are_too_long", "test_slow_for_good", "test_threads",
           "test_what_is_wrapped_is_unwrapped", "test_what_others_have_wrapped_is_not_sent",
           "test_without_its_packages"]


@dataclass
class Service:
    """A server, and what differs between services."""

    server: Loopback
    client: Callable[..., RemoteKms]  #: makes a client with some options
    names: tuple[str, str]  #: of two keys
    wrapped: str  #: has the form of a wrapped key
    packages: dict[str, str]  #: module -> what to install
    faults: Sequence[tuple[str, Callable]]  #: that may pass, and what the error says of each
    secrets: Sequence[str] = ()
    foreign: Sequence[str | bytes] = ()  #: does not have the form of a wrapped key
    impossible: Sequence[str] = ()  #: no names of keys
    too_long: Sequence[Callable] = ()  #: faults
    odd: Callable | None = None  #: an unusual response that is valid


@pytest.mark.parametrize("size", [16, 24, 32])
def test_what_is_wrapped_is_unwrapped(service, size):
    key = b"k" * size
    for name in service.names:
        wrapped = round_trip(service.client, key, name)
        assert key not in wrapped.encode() + b" ".join(map(decoded, wrapped.split(":")))


@pytest.mark.slow
def test_files(service, tmp_path):
    files_round_trip(service.client(), *service.names, tmp_path)


def test_what_others_have_wrapped_is_not_sent(service):
    for wrapped in service.foreign:
        refused(KeyUnwrapError, lambda wrapped=wrapped: service.client().unwrap_key(
            wrapped, service.names[0]))
    assert service.server.requests == []


def test_no_other_name_opens_it(service):
    """Not even if the same key goes by two names."""
    service.server.same_key(service.names[0], "twin")
    wrapped = service.client().wrap_key(KEY, service.names[0])
    refused(KeyUnwrapError, lambda: service.client().unwrap_key(wrapped, "twin"), "'twin'")
    for kms, name in (service.client(), service.names[1]), (service.client(), "column"):
        with pytest.raises((KeyUnwrapError, KeyNotFoundError), match=repr(name)):
            kms.unwrap_key(wrapped, name)


def test_keys_of_older_versions_open(service):
    kms, name = service.client(), service.names[0]
    first = kms.wrap_key(KEY, name)
    service.server.rotate(name)
    second = kms.wrap_key(KEY, name)
    assert kms.unwrap_key(first, name) == kms.unwrap_key(second, name) == KEY


def test_names_that_no_key_can_have_are_not_sent(service):
    kms = service.client()
    for name in service.impossible:
        for call in (lambda name=name: kms.wrap_key(KEY, name),
                     lambda name=name: kms.unwrap_key(service.wrapped, name)):
            refused(KeyNotFoundError, call, repr(name))
    assert service.server.requests == []


def test_down_and_up_again(service, pauses):
    kms, name, server = service.client(), service.names[0], service.server
    wrapped = kms.wrap_key(KEY, name)
    for _, fault in service.faults:
        server.requests.clear()
        pauses.clear()
        server.faults = [fault, fault]
        assert kms.unwrap_key(wrapped, name) == KEY
        assert len(server.requests) == 3 == len(pauses) + 1


def test_failing_for_good(service, pauses):
    kms, name, server = service.client(attempts=5), service.names[0], service.server
    kms.wrap_key(KEY, name)  # it has logged in
    for word, fault in service.faults:
        server.requests.clear()
        pauses.clear()
        server.always = fault
        refused(KmsUnavailableError, lambda: kms.wrap_key(KEY, name), word,
                secrets=service.secrets)
        assert len(server.requests) == 5 == len(pauses) + 1


def test_slow_for_good(service, pauses):
    service.server.always = slow(1)
    with paused(0.3):  # 2 attempts of 0.15 seconds
        refused(KmsUnavailableError, lambda: service.client(timeout=0.15, attempts=2).wrap_key(
            KEY, service.names[0]), "no response", secrets=service.secrets)
    assert len(service.server.requests) == 2


def test_limits_of_years(service):
    client = service.client(timeout=1e9, attempts=1000)
    assert client.unwrap_key(client.wrap_key(KEY, service.names[0]), service.names[0]) == KEY


def test_a_server_that_never_ends_its_response(service, monkeypatch):
    """Each part of it comes in time."""
    monkeypatch.setattr(remote, "_LONGEST_ATTEMPT", 0)
    monkeypatch.setattr(remote, "_LONGEST_PAUSE", 0.1)
    ended = threading.Event()
    service.server.always = lambda request: ended.wait(60)
    try:
        refused(KmsUnavailableError, lambda: service.client(timeout=60, attempts=1).wrap_key(
            KEY, service.names[0]), "no whole response", secrets=service.secrets)
        assert not ended.is_set()
    finally:
        ended.set()


#: in the form that one of the services would use
BODIES = [
    b"", b"SECRET", b"<html>SECRET</html>", b"[]", b"null", b"{}", b"[" * 100_000,
    b'{"Plaintext": 5}',
    b'{"Plaintext": "SECRET no base64", "CiphertextBlob": "SECRET no base64"}',
    b'{"value": 5}', b'{"value": "AAAA"}', b'{"value": "AAAA", "kid": "footer"}',
    b'{"value": "AAAA", "kid": "https://h/keys/column/0"}',
    b'{"value": "AAAA", "kid": "https://h/keys/footer"}',
    b'{"value": "SECRET!", "kid": "https://h/keys/footer/0"}',
    b'{"value": "", "kid": "https://h/keys/footer/0"}',
    b'{"plaintext": 5}', b'{"plaintext": "SECRET", "ciphertext": "SECRET"}',
    b'{"data": null}', b'{"data": {}}', b'{"data": {"plaintext": 5, "ciphertext": 5}}',
    b'{"data": ["plaintext"]}', b'{"data": {"plaintext": "SECRET!"}}']


@for_each("body", BODIES)
def test_answers_of_something_else(service, pauses, body):
    service.server.always = None
    kms = service.client()
    kms.wrap_key(KEY, service.names[0])  # it has logged in
    service.server.always = answer(200, body, Content_Type="application/json")
    for call in (lambda: kms.wrap_key(KEY, service.names[0]),
                 lambda: kms.unwrap_key(service.wrapped, service.names[0])):
        refused(KmsUnavailableError, call)


def test_responses_that_are_too_long(service, pauses):
    kms = service.client()
    wrapped = kms.wrap_key(KEY, service.names[0])
    for fault in service.too_long:
        service.server.always = fault
        refused(KmsUnavailableError, lambda: kms.unwrap_key(wrapped, service.names[0]))
    service.server.always = service.odd
    assert kms.unwrap_key(wrapped, service.names[0]) == KEY


def test_limits_that_are_refused(service):
    for limits in ({"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"attempts": 0}):
        refused(ValueError, lambda limits=limits: service.client(**limits), next(iter(limits)))


def test_without_its_packages(service):
    for module, package in service.packages.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            refused(MissingExtraError, lambda: service.client().wrap_key(KEY, service.names[0]),
                    f"pip install '{package}>=")


@pytest.mark.slow
def test_other_processes(service):
    kms = service.client()
    other_processes(kms, service.names[0])
    assert not [one for one in service.secrets if one.encode() in pickle.dumps(kms)]


@pytest.mark.slow
def test_a_fork_opens_connections_of_its_own(service):
    connections_of_its_own_after_a_fork(service.client(), service.names[0])


@pytest.mark.slow
def test_threads(service):
    in_threads(service.client(), service.names[0], calls=64)
