"""Encrypt the files of a folder, distributed over a Spark cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from secure_bloom.encryption import EncryptionConfiguration
from secure_bloom.keys.keyring import Keyring
from secure_bloom.keys.retrieval import open_client
from secure_bloom.policy.environment import given_or_of_environment
from secure_bloom.policy.policy import Policy
from secure_bloom.reencryption.folder import (
    Done,
    Files,
    change_files,
    find_files,
    finish,
    nothing_done,
)
from secure_bloom.reencryption.result import ReencryptResult
from secure_bloom.reencryption.wanted import Wanted
from secure_bloom.sbbf.options import BloomFilters
from secure_bloom.spark.options.kms import client_or_no_keys, uri_for_tasks
from secure_bloom.spark.options.options import locate, without_file_scheme
from secure_bloom.spark.tasks import run_tasks
from secure_bloom.storage.files import FilePath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def encrypt(spark: SparkSession, path: FilePath, *, keys: Keyring | FilePath | None = None,
            encryption: EncryptionConfiguration | None = None,
            policy: Policy | FilePath | None = None, bloom_filters: BloomFilters = None,
            output: FilePath | None = None, dry_run: bool = False,
            keep_times: bool = False) -> ReencryptResult:
    """Encrypt the existing files of a folder, one task for each file, without decoding their pages.

    As :func:`secure_bloom.encrypt`, which describes what happens to a file. At the end, the driver
    removes summary files, and brings the indexes of the table up to date. A retried task finds that
    the first attempt has changed its file, and leaves it. If the job fails, files that were done
    stay encrypted: call it again for the others.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        Classic or Connect.
    path : str or path
        The folder, as given to ``save``; the driver and all executors must be able to access it.
    keys : str, path or Keyring, optional
        The path of a keyring, or the URI of a KMS, which the workers need as well. Of a Keyring,
        only the path is used. Default: as set in the environment of this process.
    encryption : EncryptionConfiguration, optional
        How the files are encrypted. Required without a policy.
    policy : Policy, str or path, optional
        How each file is encrypted, and which Bloom filters it gets; read by this process. With
        ``encryption``, what that must meet.
    bloom_filters : bool, iterable of str, or mapping, optional
        Columns that get a Bloom filter where they have none, besides those of the policy.
    output : str or path, optional
        A folder for the new files, on the same filesystem. The old files stay.
    dry_run : bool
        Only report what would be done.
    keep_times : bool
        Whether the new files have the times of the old ones, to the millisecond. Only for local
        files, which every worker must see. Programs that notice a change by size and time may miss
        it.

    Returns
    -------
    ReencryptResult
        Files that could not be changed are listed in ``failed``.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    TypeError
        If neither ``encryption`` nor a policy is given, or there are no keys.
    UnsupportedError
        If the files belong to a table of Delta Lake, Iceberg or Hudi, which records their sizes; or
        ``keep_times`` is set for files that are not local.
    ArgumentError
        If ``output`` is within the folder, or on another filesystem.
    PolicyError
        If the policy is not valid.
    pyspark.errors.PySparkException
        If a task fails, because the KMS does not respond, for example.

    Examples
    --------
    >>> secure_bloom.spark.encrypt(spark, "/data/people", policy="policy.toml")  # doctest: +SKIP
    """
    wanted = Wanted.of(encryption, given_or_of_environment(policy), bloom_filters)
    uri = uri_for_tasks(keys)
    kms = open_client(client_or_no_keys(uri), to_wrap=True)
    root = str(path)
    filesystem, folder = locate(root)
    new_root = None if output is None else without_file_scheme(str(output))
    files = find_files(folder, new_root, filesystem, keep_times=keep_times)

    def change(files: Files) -> Done:
        done = nothing_done(dry_run=dry_run)
        work = partial(_encrypt_one, root, folder, uri, wanted, dry_run, keep_times)
        for part in run_tasks(spark, work,
                              [(one, files.new_paths.get(one)) for one in files.paths]):
            done.add(part)
        return done

    return finish(files, change(files), kms, change, replaces_indexes=False)


def _encrypt_one(root: str, folder: str, uri: str | None, wanted: Wanted, dry_run: bool,
                 keep_times: bool, paths: tuple[str, str | None]) -> Done:
    """Encrypt a file, in its place or at a new path."""
    path, new_path = paths
    kms = open_client(client_or_no_keys(uri), to_wrap=True)
    files = Files(locate(root)[0], folder, [path], {} if new_path is None else {path: new_path},
                  keep_times=keep_times)
    return change_files(files, kms, wanted.planner(kms), dry_run=dry_run, files_at_once=1,
                        advance=lambda fraction: None)
