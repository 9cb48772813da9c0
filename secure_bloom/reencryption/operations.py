"""Encrypt existing files, encrypt them again, or decrypt them: what users call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import pyarrow.fs as pa_fs

from secure_bloom.arguments import names_of_columns
from secure_bloom.display import listed
from secure_bloom.encryption import EncryptionConfiguration, as_configuration
from secure_bloom.errors import KeyNotFoundError
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.operations.inventory import list_master_keys
from secure_bloom.keys.retrieval import Keys, open_client
from secure_bloom.policy.environment import given_or_of_environment
from secure_bloom.policy.policy import Policy
from secure_bloom.progress import shown_progress
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reencryption.folder import change_folder
from secure_bloom.reencryption.journal import Journal
from secure_bloom.reencryption.one_file import Plan, Planner
from secure_bloom.reencryption.result import ReencryptResult
from secure_bloom.reencryption.target import (
    PLAINTEXT,
    check_stays_encrypted,
    configured,
    encrypted_columns,
    named_ordinals,
    names_material,
    same,
)
from secure_bloom.reencryption.wanted import Wanted, check_may_open, wanted_encryption
from secure_bloom.sbbf.options import BloomFilters
from secure_bloom.storage.files import FilePath, resolve
from secure_bloom.storage.many_files import Advance
from secure_bloom.storage.versions import local_path


def encrypt(path: FilePath, keys: Keys = None, *,
            encryption: EncryptionConfiguration | None = None,
            policy: Policy | FilePath | None = None, bloom_filters: BloomFilters = None,
            new_keys: Keys = None, output: FilePath | None = None, dry_run: bool = False,
            keep_times: bool = False, filesystem: pa_fs.FileSystem | None = None,
            files_at_once: int | None = None, advance: Advance | None = None,
            progress: bool | None = None) -> ReencryptResult:
    """Encrypt existing Parquet files, without decoding their pages.

    Every file becomes what the policy or the encryption says: plaintext files of any writer, and
    files that are encrypted in another way. Each is replaced in one step and keeps its name. Pages
    keep their bytes before encryption, and so do encodings, codecs, row groups, schema, statistics,
    page indexes and existing Bloom filters; all of them are encrypted where their column is. A file
    that is as required already stays as it is, so an interrupted run goes on if it is run again.

    Summary files (``_metadata``) are removed, and table indexes are made anew, encrypted as their
    column is.

    Parameters
    ----------
    path : str or path
        A Parquet file from any writer, or a folder of Parquet files, or a URI.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        The keys of the files, and the KMS that wraps their new keys. Default: as set in the
        environment.
    encryption : EncryptionConfiguration, optional
        How the files are encrypted. Required without a policy.
    policy : Policy, str or path, optional
        How each file is encrypted, and which Bloom filters it gets. With ``encryption``, what that
        must meet.
    bloom_filters : bool, iterable of str, or mapping, optional
        Columns that get a Bloom filter where they have none, as for :func:`write_table`, besides
        those of the policy. Only these columns are decoded.
    new_keys : KmsClient, path of a keyring, or URI of a KMS, optional
        The KMS that wraps the new keys, if that is another one.
    output : str or path, optional
        A folder for the new files, which replace those of the same name there. The old files stay.
        Files that need no change are copied.
    dry_run : bool
        Report what would be done, without changing anything.
    keep_times : bool
        Whether the new files have the times of the old ones, to the millisecond, for jobs that go
        by the age of files. Only for local files. Programs that notice a change by size and time
        may miss it.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    progress : bool, optional
        Whether to show the progress on standard error. Default: if it takes more than two seconds,
        in a terminal or a notebook, and without ``advance``.

    Returns
    -------
    ReencryptResult
        Files that could not be changed are listed in ``failed``: those that would have an encrypted
        column in plaintext, for example.

    Raises
    ------
    FileNotFoundError
        If the file or folder does not exist.
    TypeError
        If neither ``encryption`` nor a policy is given, or ``keys`` cannot wrap.
    UnsupportedError
        If the files belong to a table of Delta Lake, Iceberg or Hudi, which records their sizes; or
        ``keep_times`` is set for files that are not local.
    ArgumentError
        If ``output`` is within the folder, or on another filesystem.
    PolicyError
        If the policy is not valid.
    KeyRetrievalError
        If the KMS does not respond.

    Notes
    -----
    Copies of the old files cannot be changed: backups, versions of objects, snapshots, hard links,
    and blocks of the disk that were freed. Readers that need keys must have them before.

    Plaintext files are taken as they are: whoever could write into the folder before may have
    changed rows and filters, and the new file vouches for them. Files whose parts overlap or
    contradict the footer are refused.

    Data pages of version 2 are encrypted as a whole, as Arrow does it; parquet-java cannot read
    such pages.

    Examples
    --------
    >>> secure_bloom.encrypt("lake/", "keyring.json", policy="policy.toml")  # doctest: +SKIP
    """
    rules = given_or_of_environment(policy)
    wanted = Wanted.of(encryption, rules, bloom_filters)
    kms = _writing_kms(keys, new_keys)
    return _change("encrypt", path, keys, wanted.planner(kms), kms, output, dry_run, keep_times,
                   filesystem, files_at_once, advance, progress, replaces_indexes=False)


def reencrypt(path: FilePath, keys: Keys = None, *,
              encryption: EncryptionConfiguration | None = None,
              policy: Policy | FilePath | None = None,
              master_keys: Mapping[str, str] | None = None, new_keys: Keys = None,
              journal: str | os.PathLike[str] | None = None,
              output: FilePath | None = None, dry_run: bool = False, keep_times: bool = False,
              filesystem: pa_fs.FileSystem | None = None, files_at_once: int | None = None,
              advance: Advance | None = None, progress: bool | None = None) -> ReencryptResult:
    """Encrypt encrypted Parquet files again, with new data keys, after a key has leaked.

    :func:`secure_bloom.keys.rotate_master_keys` wraps the same data keys again, which does not help
    against somebody who has them. This makes new data keys and new key-encryption keys, and
    encrypts everything with them. No module of the old files opens with the new keys, or in the new
    files. Plaintext files stay as they are.

    An interrupted run that is run again starts over, unless it has a journal.

    Parameters
    ----------
    path : str or path
        A Parquet file from any writer, or a folder of Parquet files, or a URI.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        The keys of the files, and the KMS that wraps their new keys. Default: as set in the
        environment.
    encryption : EncryptionConfiguration, optional
        How the files are encrypted then. Default: as now. Required for files with explicit keys.
    policy : Policy, str or path, optional
        How each file is encrypted then; with ``encryption``, what that must meet.
    master_keys : mapping of str to str, optional
        Which master keys are replaced by which, without ``encryption`` and ``policy``. Default:
        the new data keys are wrapped by the same ones.
    journal : str or path, optional
        A local file that notes which files are done. A run with the same file skips them. It must
        not be in the folder: anyone who can write to it can make a run skip files. It cannot be
        used with ``output``.
    new_keys : KmsClient, path of a keyring, or URI of a KMS, optional
        The KMS that wraps the new keys, if that is another one.
    output : str or path, optional
        A folder for the new files, which replace those of the same name there. The old files stay.
        Files that need no change are copied.
    dry_run : bool
        Report what would be done, without changing anything.
    keep_times : bool
        Whether the new files have the times of the old ones, to the millisecond, for jobs that go
        by the age of files. Only for local files. Programs that notice a change by size and time
        may miss it.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    progress : bool, optional
        Whether to show the progress on standard error. Default: if it takes more than two seconds,
        in a terminal or a notebook, and without ``advance``.

    Returns
    -------
    ReencryptResult
        ``unused_master_keys`` are those that no file has any more.

    Raises
    ------
    FileNotFoundError, TypeError, UnsupportedError, PolicyError, KeyRetrievalError
        As for :func:`encrypt`.
    TypeError
        If ``master_keys`` is given with ``encryption`` or ``policy``, or ``journal`` with
        ``output``.
    ArgumentError
        If ``journal`` is in the folder, or another file; or for ``output`` as above.
    KeyNotFoundError
        If no file uses a master key that is to be replaced, or the one that replaces it.

    Notes
    -----
    Whoever has the old keys and a copy of the old files can still read these.

    Examples
    --------
    >>> secure_bloom.reencrypt("lake/", "keyring.json", master_keys={"pii": "pii-2"})
    ... # doctest: +SKIP
    """
    rules = None if policy is None and encryption is None else given_or_of_environment(policy)
    configuration = None if encryption is None else as_configuration(encryption)
    if master_keys is not None and (configuration is not None or policy is not None):
        raise TypeError("master_keys replaces master keys and leaves everything else as it is: "
                        "pass it without encryption and policy")
    if journal is not None and output is not None:
        raise TypeError("a journal cannot be used with an output folder, as no old file is "
                        "replaced: omit one of the two")
    kms = _writing_kms(keys, new_keys)
    if master_keys:
        _check_in_use(path, keys, master_keys, filesystem)
    done = None if journal is None or (dry_run and not os.path.exists(journal)) \
        else Journal(journal, local_path(*resolve(path, filesystem)))

    def planner(file: OpenFile) -> Plan | None:
        algorithm = file.footer.algorithm
        if algorithm is None or (done is not None and done.has(algorithm.aad_file_unique)):
            return None
        has_rules = rules is not None or configuration is not None
        wanted = wanted_encryption(file, configuration, rules) if has_rules else None
        if wanted is None:
            target = same(file.footer, file.keys, kms, to=master_keys or {},
                          is_internal=output is None or not names_material(file.footer))
        else:
            target = configured(wanted, kms, file.footer)
            check_stays_encrypted(target, file.footer)
        return Plan(target)

    return _change("reencrypt", path, keys, planner, kms, output, dry_run, keep_times,
                   filesystem, files_at_once, advance, progress, replaces_indexes=True,
                   journal=done)


def decrypt(path: FilePath, keys: Keys = None, *, plaintext: bool = False,
            columns: Iterable[str] | None = None, output: FilePath | None = None,
            dry_run: bool = False, keep_times: bool = False,
            filesystem: pa_fs.FileSystem | None = None, files_at_once: int | None = None,
            advance: Advance | None = None, progress: bool | None = None) -> ReencryptResult:
    """Turn encrypted Parquet files, or some of their columns, into plaintext.

    Parameters
    ----------
    path : str or path
        A Parquet file from any writer, or a folder of Parquet files, or a URI.
    keys : KmsClient, ExplicitKeys, path of a keyring, or URI of a KMS, optional
        The keys of the files, and the KMS that wraps their new keys. Default: as set in the
        environment.
    plaintext : bool
        Must be True: that the data become readable for everyone is said by name.
    columns : iterable of str, optional
        Dotted paths of columns, or of groups, that will be in plaintext; the others get new data
        keys. Default: the whole file.
    output : str or path, optional
        A folder for the new files, which replace those of the same name there. The old files stay.
        Files that need no change are copied.
    dry_run : bool
        Report what would be done, without changing anything.
    keep_times : bool
        Whether the new files have the times of the old ones, to the millisecond, for jobs that go
        by the age of files. Only for local files. Programs that notice a change by size and time
        may miss it.
    filesystem : pyarrow.fs.FileSystem, optional
        Default: the local file system, or the one that a URI names.
    files_at_once : int, optional
        Default: one per core.
    advance : callable, optional
        Called with the completed fraction, 0 to 1.
    progress : bool, optional
        Whether to show the progress on standard error. Default: if it takes more than two seconds,
        in a terminal or a notebook, and without ``advance``.

    Returns
    -------
    ReencryptResult

    Raises
    ------
    FileNotFoundError, UnsupportedError, ArgumentError, KeyRetrievalError
        As for :func:`encrypt`.
    TypeError
        If ``plaintext`` is not True.
    PolicyError
        If the policy of the environment requires that one of these columns is encrypted; listed in
        ``failed``.

    Examples
    --------
    >>> secure_bloom.decrypt("lake/", "keyring.json", plaintext=True)        # doctest: +SKIP
    """
    if plaintext is not True:
        raise TypeError("decrypt makes the data readable for everyone: pass plaintext=True "
                        "(--plaintext) if that is intended")
    rules = given_or_of_environment(None)
    wanted = None if columns is None else names_of_columns(columns)
    kms = None if wanted is None else _writing_kms(keys, None)

    def planner(file: OpenFile) -> Plan | None:
        if not file.footer.is_encrypted:
            return None
        encrypted = encrypted_columns(file.footer)
        opened = set(encrypted) if wanted is None else named_ordinals(wanted, file.columns)
        if wanted is not None and opened.isdisjoint(encrypted):
            return None
        check_may_open(file, rules, opened)
        if wanted is None:
            return Plan(PLAINTEXT)
        assert kms is not None
        return Plan(same(file.footer, file.keys, kms, to={}, opened=opened,
                         is_internal=output is None or not names_material(file.footer)))

    return _change("decrypt", path, keys, planner, kms, output, dry_run, keep_times,
                   filesystem, files_at_once, advance, progress, replaces_indexes=False)


def _change(label: str, path: FilePath, keys: Keys, planner: Planner, kms: CachedKms | None,
            output: FilePath | None, dry_run: bool, keep_times: bool,
            filesystem: pa_fs.FileSystem | None, files_at_once: int | None,
            advance: Advance | None, progress: bool | None, *,
            replaces_indexes: bool, journal: Journal | None = None) -> ReencryptResult:
    with shown_progress(label, progress, advance) as advance:
        return change_folder(path, keys, planner, output=output, new_kms=kms, dry_run=dry_run,
                             keep_times=keep_times, replaces_indexes=replaces_indexes,
                             filesystem=filesystem, files_at_once=files_at_once, advance=advance,
                             journal=journal)


def _check_in_use(path: FilePath, keys: Keys, master_keys: Mapping[str, str],
                  filesystem: pa_fs.FileSystem | None) -> None:
    """Refuse to replace a master key that no file uses: with its name misspelt, it would stay."""
    found = list_master_keys(path, keys, filesystem=filesystem)
    used = {one.name for one in found.master_keys}
    for old, new in master_keys.items():
        if not (found.hidden or found.failed or used & {old, new}):
            raise KeyNotFoundError(f"no file below {path} uses master key {old!r}; the files use: "
                                   f"{listed(sorted(used)) or 'none'}")


def _writing_kms(keys: Keys, new_keys: Keys) -> CachedKms:
    """Return what wraps the new keys: a client with a cache of its own.

    So key-encryption keys are new, too: those of this process may be known to whoever has a key.
    """
    return CachedKms(open_client(keys if new_keys is None else new_keys, to_wrap=True).kms)

