"""A keyring: master keys in a local file that only its owner may read. The embedded default."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from secure_bloom.display import warn
from secure_bloom.errors import KeyNotFoundError, KeyringError, WeakPassphraseWarning
from secure_bloom.keys import keyring_file
from secure_bloom.keys.keyring_file import Content, SealingKey
from secure_bloom.keys.kms import InMemoryKms, check_key
from secure_bloom.keys.passphrase import weakness
from secure_bloom.storage.local_files import without_waiting

CHECK_INTERVAL = 1.0  #: seconds
_Stamp: TypeAlias = tuple[int, ...]  # identifies one state of the file; empty if there is none


class Keyring(InMemoryKms):
    """A KMS client over a local file of named master keys; wraps like :class:`InMemoryKms`.

    The file is read again whenever it has changed. Keys that are added to it later, by any process,
    are available immediately. What its keys have unwrapped stays cached until the file is changed,
    replaced or removed, and at most ``check_interval`` seconds longer. Only the path is pickled:
    the process that unpickles the keyring must be able to read the file.

    Parameters
    ----------
    path : str or path
        An existing keyring; see :meth:`create`.
    passphrase : str or callable that returns one, optional
        For a keyring that has one: one without is refused, because someone may have put it there.
        Never pickled: to pickle such a keyring, use ``passphrase_file``.
    passphrase_file : str or path, optional
        A file whose first line is the passphrase, and that only its owner may read.
    ask : callable that takes the path and returns the passphrase, optional
        For a keyring that may have a passphrase, if none of the above is given; called if it does.
    owner : int, optional
        Id of a user who may own the file, and the passphrase file, besides the current user and
        root. That user decides which keys are used.
    check_interval : float
        Seconds after which a cached key is used only if the file has not changed since; 0 means
        that the file is looked at before every use.

    Raises
    ------
    KeyringNotFoundError
        If the file does not exist. Calls raise it as well if the file was removed since.
    KeyringError
        If the file cannot be read, is not a valid keyring, is accessible to others or belongs to
        another user, or if the passphrase is wrong, or was given and the file has none.
    ValueError
        If ``check_interval`` is negative or not a number.
    """

    def __init__(self, path: str | os.PathLike[str],
                 passphrase: str | Callable[[], str] | None = None, *,
                 passphrase_file: str | os.PathLike[str] | None = None,
                 ask: Callable[[str], str] | None = None, owner: int | None = None,
                 check_interval: float = CHECK_INTERVAL):
        if not check_interval >= 0:
            raise ValueError(f"check_interval must be 0 seconds or more, not {check_interval!r}")
        self.path = Path(path)
        self._check_interval = check_interval
        self._given, self._ask, self._owner = passphrase, ask, owner
        self._passphrase_file = None if passphrase_file is None else Path(passphrase_file)
        super().__init__({})
        self._seen: tuple[Content, _Stamp | None] = self._read(None)

    @classmethod
    def create(cls, path: str | os.PathLike[str],
               passphrase: str | Callable[[], str] | None = None, *,
               keys: Iterable[str] = (), exist_ok: bool = False) -> Keyring:
        """Create a keyring with mode 0600; an existing file is never overwritten.

        Parameters
        ----------
        path : str or path
        passphrase : str or callable that returns one, optional
            One that is easily guessed causes a :class:`.WeakPassphraseWarning`.
        keys : iterable of str
            Names of new random master keys of 256 bits.
        exist_ok : bool
            If there is a keyring at the path, open it, and add only those of the keys that it
            lacks. So a cell of a notebook can run again.

        Raises
        ------
        KeyringError
            If the file exists, and ``exist_ok`` is false; or as from ``Keyring(path, passphrase)``.
        """
        names = [keys] if isinstance(keys, str) else list(keys)
        for name in names:
            _check_name(name)
        if exist_ok and os.path.lexists(path):
            return cls._opened_with(path, passphrase, names)
        try:
            return cls._create(path, Content(_new_keys(names)), passphrase)
        except KeyringError:
            if not (exist_ok and os.path.lexists(path)):  # another process may have created it
                raise
            return cls._opened_with(path, passphrase, names)

    @classmethod
    def _opened_with(cls, path: str | os.PathLike[str],
                     passphrase: str | Callable[[], str] | None, names: list[str]) -> Keyring:
        keyring = cls(path, passphrase)
        if not set(names) <= set(keyring.names()):
            keyring._change(lambda found: None, lambda found: {**_new_keys(names), **found})
        return keyring

    @classmethod
    def _create(cls, path: str | os.PathLike[str], content: Content,
                passphrase: str | Callable[[], str] | None) -> Keyring:
        path = Path(path)
        keyring_file.check_folder(path)
        if callable(passphrase):
            passphrase = _checked(passphrase())
        sealing = _derived(passphrase)
        keyring_file.create(path, replace(content, sealing=sealing))
        return cls(path, passphrase)

    def add(self, name: str, key: bytes | None = None, *, bits: int = 256) -> None:
        """Add a master key: the given one, or a new random one of 128, 192 or 256 bits.

        Raises
        ------
        KeyringError
            If the name is already in use.
        ValueError
            If the name is empty or the key does not have a valid AES length.
        """
        _check_name(name)
        if key is None:
            if bits not in (128, 192, 256):
                raise ValueError(f"a key has 128, 192 or 256 bits, not {bits}")
            key = os.urandom(bits // 8)
        check_key(key, name)
        self._change(lambda names: self._check_free(names, name),
                     lambda keys: {**keys, name: bytes(key)})

    def remove(self, name: str) -> None:
        """Remove a master key. Without another copy of it, all keys it has wrapped are lost.

        Raises
        ------
        KeyNotFoundError
            If the key does not exist.
        """
        self._change(lambda names: self._check_present(names, [name]),
                     lambda keys: {one: key for one, key in keys.items() if one != name})

    def rename(self, old: str, new: str) -> None:
        """Rename a master key.

        Files name their master keys, and the name is authenticated: files that were written under
        the old name cannot be opened under the new one. For those, add a key and rotate, see
        :func:`secure_bloom.keys.rotate_master_keys`.

        Raises
        ------
        KeyNotFoundError
            If the key does not exist.
        KeyringError
            If the new name is already in use.
        ValueError
            If the new name is empty or not printable.
        """
        _check_name(new)

        def check(names: Collection[str]) -> None:
            self._check_present(names, [old])
            self._check_free(names, new)

        self._change(check, lambda keys: {new if name == old else name: key
                                          for name, key in keys.items()})

    def subset(self, path: str | os.PathLike[str], names: Iterable[str], *,
               passphrase: str | Callable[[], str] | None) -> Keyring:
        """Create another keyring with some of the keys, for readers limited to some columns.

        Parameters
        ----------
        path : str or path
            An existing file is never overwritten.
        names : iterable of str
            Names of one or more keys.
        passphrase : str, callable that returns one, or None
            For the new keyring; None creates it without a passphrase.

        Raises
        ------
        KeyNotFoundError
            If one of the keys does not exist.
        KeyringError
            If the file cannot be created.
        """
        names = [names] if isinstance(names, str) else list(names)
        if not names:
            raise ValueError("specify at least one key for the new keyring")
        content = self._current()
        self._check_present(content.keys.keys(), names)
        some = Content({name: content.keys[name] for name in names})
        return self._create(path, some, passphrase)

    def export(self, name: str) -> bytes:
        """Return a plaintext master key, for another keyring or KMS.

        The key gives access to the data that it protects.

        Raises
        ------
        KeyNotFoundError
            If the key does not exist.
        """
        return self._key(name)

    def set_passphrase(self, passphrase: str | None) -> None:
        """Change the passphrase; None removes it.

        Warns if the passphrase is easily guessed, as :meth:`create` does.
        """
        sealing = _derived(passphrase)
        with keyring_file.locked(self.path):
            content, _ = self._read(self._seen[0].sealing)
            self._replace(Content(content.keys, sealing))
            self._given, self._passphrase_file = passphrase, None  # the file holds the old one

    @property
    def has_passphrase(self) -> bool:
        """Whether the file is encrypted with a passphrase."""
        return self._current().sealing is not None

    def names(self) -> list[str]:
        """Return the names of the master keys, sorted."""
        return sorted(self._current().keys)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """See :meth:`KmsClient.wrap_key`."""
        try:
            return super().wrap_key(key_bytes, master_key_identifier)
        except KeyNotFoundError as error:  # only for what is written: a new key reads nothing
            error.message += (f"; to create it: secure_bloom.Keyring("
                              f"{keyring_file.as_typed(self.path)!r})"
                              f".add({master_key_identifier!r}), or 'secure-bloom keyring add'")
            raise

    def cache_version(self, *, fresh: bool = False) -> _Stamp:
        """See :meth:`KmsClient.cache_version`. Looks at the file once in ``check_interval``."""
        since, stamp = self._looked
        is_recent = time.monotonic() - since < self._check_interval
        return stamp if is_recent and not fresh else self._look()

    def _master_keys(self) -> dict[str, bytes]:
        return self._current().keys

    def _current(self) -> Content:
        """Return the content of the file; reread it if it has changed."""
        content, stamp = self._seen
        if self._look() != stamp:  # two threads may both read it, which is harmless
            self._seen = Content({}, content.sealing), None  # reading may fail: use no old key
            content, _ = self._seen = self._read(content.sealing)
        return content

    def _look(self) -> _Stamp:
        now = time.monotonic()
        stamp = _stamp(self.path)
        self._looked = now, stamp
        return stamp

    def _read(self, known: SealingKey | None) -> tuple[Content, _Stamp]:
        """Read the file. ``known`` is the key that it was sealed with before, if any."""
        stamp = self._look()
        content = keyring_file.read(self.path, self._passphrase, known, self._owner)
        given = known, self._given, self._passphrase_file
        if content.sealing is None and any(one is not None for one in given):
            raise KeyringError(
                "a passphrase was given, but the file has none, so it may have been replaced, and "
                "its keys may be somebody else's: restore the file from a backup; if you removed "
                "the passphrase, open the keyring without one", file=str(self.path))
        return content, stamp

    def _change(self, check: Callable[[Collection[str]], None],
                change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
        """Replace the keys in the file by the result of a function of them.

        ``check`` gets only their names: programs that report errors show variables.
        """
        with keyring_file.locked(self.path):
            content, _ = self._read(self._seen[0].sealing)
            check(content.keys.keys())
            self._replace(Content(change(content.keys), content.sealing))

    def _check_free(self, names: Collection[str], name: str) -> None:
        if name in names:
            raise KeyringError(f"a key named {name!r} already exists", file=str(self.path))

    def _check_present(self, found: Collection[str], names: Iterable[str]) -> None:
        for name in names:
            if name not in found:
                raise KeyNotFoundError(f"there is no master key named {name!r}; available: "
                                       f"{', '.join(sorted(found)) or 'none'}", file=str(self.path))

    def _replace(self, content: Content) -> None:
        keyring_file.replace(self.path, content)
        self._seen = content, self._look()

    def _passphrase(self) -> str:
        if self._passphrase_file is not None:
            return _read_passphrase(self._passphrase_file, self._owner)
        if self._given is None and self._ask is not None:
            return _checked(self._ask(str(self.path)))
        if self._given is None:
            raise KeyringError("it needs a passphrase: specify a file that contains it "
                               "(keyring:PATH?passphrase-file=PATH, or passphrase_file=)",
                               file=str(self.path))
        return _checked(self._given() if callable(self._given) else self._given)

    def __reduce__(self) -> tuple[object, ...]:
        if self._seen[0].sealing is not None and self._passphrase_file is None:
            raise TypeError("a passphrase is never pickled: open the keyring with passphrase_file=")
        return _open, (str(self.path), self._passphrase_file and str(self._passphrase_file),
                       self._owner, self._check_interval)

    def __repr__(self) -> str:
        return f"<Keyring {self.path} with keys {sorted(self._seen[0].keys)}>"


def _new_keys(names: Iterable[str]) -> dict[str, bytes]:
    return {name: os.urandom(32) for name in names}


def _open(path: str, passphrase_file: str | None, owner: int | None,
          check_interval: float) -> Keyring:
    return Keyring(path, passphrase_file=passphrase_file, owner=owner,
                   check_interval=check_interval)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a key must be text, not {type(name).__name__}")
    if not name or not name.isprintable():
        raise ValueError("a key name must not be empty, and all its characters must be printable")


def _derived(passphrase: str | None) -> SealingKey | None:
    """Derive the key of a new passphrase; warns if it is weak."""
    if passphrase is None:
        return None
    reason = weakness(_checked(passphrase))
    if reason is not None:
        warn(WeakPassphraseWarning(f"the passphrase is easily guessed: {reason}"))
    return SealingKey.make(passphrase)


def _checked(passphrase: str) -> str:
    if not isinstance(passphrase, str):
        raise TypeError(f"the passphrase must be a string, not {type(passphrase).__name__}")
    if not passphrase:
        raise ValueError("the passphrase is empty")
    try:
        passphrase.encode()
    except UnicodeEncodeError:  # it contains the passphrase, and quotes it
        raise ValueError("the passphrase is not valid Unicode text; is the terminal set to "
                         "UTF-8?") from None
    return passphrase


def _read_passphrase(path: Path, owner: int | None) -> str:
    try:
        with open(path, encoding="utf-8", opener=without_waiting) as file:
            keyring_file.check_private(file.fileno(), path, owner)
            passphrase = file.readline().rstrip("\r\n")
    except OSError as error:
        raise KeyringError("the passphrase file cannot be read: "
                           f"{error.strerror}", file=str(path)) from error
    except UnicodeDecodeError:  # it quotes the passphrase
        raise KeyringError("the passphrase is not valid UTF-8", file=str(path)) from None
    if not passphrase:
        raise KeyringError("its first line, the passphrase, is empty", file=str(path))
    return passphrase


def _stamp(path: Path) -> _Stamp:
    try:
        stat = os.stat(path)
    except OSError:
        return ()  # reading the file then raises the error
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
