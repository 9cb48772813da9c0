"""Options with which Spark's own Parquet writer applies an EncryptionConfiguration."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from typing import Any

from secure_bloom.arguments import checks_arguments
from secure_bloom.encryption import EncryptionConfiguration, UniformKey, as_configuration
from secure_bloom.errors import PolicyError, UnsupportedError
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.material import KeyMaterial
from secure_bloom.keys.retrieval import open_client
from secure_bloom.keys.wrapping import KeyEncryptionKeys, WritingKeys
from secure_bloom.policy.policy import Policy, as_policy
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters, normalize_options
from secure_bloom.sbbf.sizing import BYTES_PER_BLOCK, MAX_BYTES, num_blocks_for
from secure_bloom.spark.native.application import FACTORY, FACTORY_OPTION, WRITE, Application
from secure_bloom.spark.native.policies import policy_content
from secure_bloom.spark.options.options import ENABLED, FPP, NDV
from secure_bloom.spark.options.options import MAX_BYTES as MAX_BYTES_OPTION
from secure_bloom.storage.files import FilePath

_DEFAULT_BYTES = 1024 * 1024  # parquet-java's default bound for the size of a filter
_CANDIDATES = 12  # sizes that parquet-java tries at once: down to 512 bytes by default


@checks_arguments
def write_options(*, encryption: EncryptionConfiguration | None = None,
                  bloom_filters: BloomFilters = None, keys: WritingKeys = None,
                  policy: Policy | FilePath | None = None) -> dict[str, str]:
    """Return options for Spark's own Parquet writer. They are valid in this application only.

    Each master key costs one call to the KMS, on the driver. Executors generate data keys for every
    file and wrap them with the key-encryption keys that these options contain in sealed form.

    Parameters
    ----------
    encryption : EncryptionConfiguration, optional
        The class of secure_bloom or of pyarrow.
    bloom_filters : iterable of str, or mapping, optional
        The leaf columns that get a filter, by dotted path; a mapping also sets the options of
        each: ``True``, BloomFilterOptions, a dict of its fields, or ``False``. ``max_bytes`` is one
        bound for all columns.
    keys : KmsClient, KeyEncryptionKeys, path of a keyring, or URI of a KMS, optional
        It wraps keys with the master keys that ``encryption`` or the policy names. Default: the KMS
        of the environment.
    policy : Policy, str or path, optional
        Which columns must be encrypted; see the page "One policy for all files". Without
        ``encryption``, the columns of each file are encrypted as it requires; otherwise
        ``encryption`` may add to the policy. Its filters are not added: name them in
        ``bloom_filters``.

    Returns
    -------
    dict of str to str
        For ``df.write.options(**options)``, a stream, a table or the session.

    Raises
    ------
    UnsupportedError
        If Spark's writer does not support what is requested.
    PolicyError
        If the policy is not valid, or does not name a footer key and there is no ``encryption``.
    KeyRetrievalError
        If a master key cannot be used.

    Examples
    --------
    >>> options = native.write_options(policy="policy.toml")  # doctest: +SKIP
    >>> df.write.options(**options).parquet("/data/people")  # doctest: +SKIP
    """
    rules = as_policy(policy)
    by_policy = encryption is None and rules is not None
    encryption = _for_all_keys(rules) if encryption is None and rules is not None \
        else checked_encryption(encryption)
    filters = normalize_options(bloom_filters)
    options = _filter_options(filters)
    client = keys if isinstance(keys, KeyEncryptionKeys) else open_client(keys)
    application = Application.active()
    plan = _plan(encryption, client, list(filters))
    if by_policy:
        plan.pop("columns", None)  # the Java class finds them in each file
    if rules is not None:
        plan["policy" if by_policy else "required"] = policy_content(rules)
    return {FACTORY_OPTION: FACTORY, WRITE: application.seal(WRITE, plan),
            # Summary files would repeat statistics of encrypted columns in plaintext.
            "parquet.summary.metadata.level": "NONE", **options}


def _for_all_keys(policy: Policy) -> EncryptionConfiguration:
    """Return a configuration with all master keys of a policy; its columns do not matter."""
    if policy.footer_key is None:
        raise PolicyError("there is no footer key: add footer_key = \"...\" to the policy, or pass "
                          "encryption")
    names = sorted({rule["key"] for rule in policy_content(policy)["rules"]} - {None})
    return EncryptionConfiguration(
        policy.footer_key, {name: [f"column{n}"] for n, name in enumerate(names)} or None,
        uniform_encryption=not names)


def checked_encryption(encryption: object) -> EncryptionConfiguration:
    """Return it as our class; raise UnsupportedError or TypeError if Spark does not support it."""
    if isinstance(encryption, UniformKey):
        raise UnsupportedError("a UniformKey is for one file, and Spark writes many: use an "
                               "EncryptionConfiguration with uniform_encryption=True")
    encryption = as_configuration(encryption)
    if encryption.other_columns != "plaintext":
        raise UnsupportedError('other_columns="footer key": Spark\'s own writer does not know all '
                               'columns before it writes; use a policy with default = "encrypt"')
    if not encryption.double_wrapping:
        raise UnsupportedError("double_wrapping=False would need the KMS on the executors, where "
                               "Python does not run: keep it on, or use the format secure_parquet")
    if not encryption.internal_key_material:
        raise UnsupportedError("internal_key_material=False: Spark's committers do not handle key "
                               "material files; keep it on")
    return encryption


def _plan(encryption: EncryptionConfiguration, client: CachedKms | KeyEncryptionKeys,
          filters: list[str]) -> dict[str, Any]:
    """Return the input of the Java class; see its method ``getFileEncryptionProperties``."""
    keks = client if isinstance(client, KeyEncryptionKeys) \
        else KeyEncryptionKeys.for_encryption(encryption, client)
    num_bytes = encryption.data_key_length_bits // 8
    names = list(encryption.column_keys or {})
    plan = {"algorithm": encryption.encryption_algorithm, "data_key_bytes": num_bytes,
            "plaintext_footer": encryption.plaintext_footer, "bloom_filters": filters,
            "keys": [_key(keks, encryption.footer_key, num_bytes, is_footer_key=True),
                     *(_key(keks, name, num_bytes) for name in names)], "footer": 0}
    if not encryption.uniform_encryption:
        plan["columns"] = {path: number for number, name in enumerate(names, 1)
                           for path in (encryption.column_keys or {})[name]}
    return plan


def _key(keks: KeyEncryptionKeys, name: str, num_bytes: int, *, is_footer_key: bool = False) \
        -> dict[str, Any]:
    """Return a key-encryption key, and the key material around a data key that it wraps."""
    kek = keks.key_encryption_key(name, num_bytes)
    data_key = uuid.uuid4().hex
    instance: dict[str, Any] = {"kms_instance_id": keks.kms_instance_id,
                "kms_instance_url": keks.kms_instance_url} if is_footer_key else {}
    material = KeyMaterial(name, data_key, kek.kek_id, kek.wrapped_kek, is_footer_key, **instance)
    before, after = material.serialize().decode().split(data_key)
    return {"name": name, "kek": base64.b64encode(kek.secret).decode(),
            "kek_id": base64.b64encode(kek.kek_id).decode(), "before": before, "after": after}


# --- Bloom filters -------------------------------------------------------------------------------

def _filter_options(filters: Mapping[str, BloomFilterOptions]) -> dict[str, str]:
    """Return parquet-java's options. Without ``ndv``, it tries several sizes and keeps the best."""
    if not filters:
        return {}
    options = {MAX_BYTES_OPTION: str(_max_bytes(filters)),
               "parquet.bloom.filter.adaptive.enabled": "true"}
    for path, wanted in filters.items():
        options[f"{ENABLED}#{path}"] = "true"
        options[f"{FPP}#{path}"] = repr(wanted.fpp)
        if wanted.ndv is not None:
            options[f"{NDV}#{path}"] = str(max(wanted.ndv, 1))
        else:
            options[f"parquet.bloom.filter.candidates.number#{path}"] = str(_CANDIDATES)
    return options


def _max_bytes(filters: Mapping[str, BloomFilterOptions]) -> int:
    """Return the one bound that Spark has for all filters, chosen so that it suits every column."""
    bounds = {path: _bounds(options) for path, options in filters.items()}
    result = max(low for low, _ in bounds.values())
    for path, (_, high) in bounds.items():
        if high < result:
            larger = next(other for other, (low, _) in bounds.items() if low == result)
            raise UnsupportedError(
                f"Spark's writer has one size limit for the filters of all columns; the limit of "
                f"this column is {high} bytes, but column {larger} needs {result}: set the same "
                "max_bytes for both, or an ndv", column=path)
    return result


def _bounds(options: BloomFilterOptions) -> tuple[int, int]:
    """Return the minimum and maximum bound with which a column gets the requested filter."""
    own = MAX_BYTES if options.max_bytes is None else 1 << (options.max_bytes.bit_length() - 1)
    if options.ndv is None:
        bound = own if options.max_bytes is not None else _DEFAULT_BYTES
        return bound, bound
    needed = num_blocks_for(options.ndv, options.fpp) * BYTES_PER_BLOCK
    return (needed, MAX_BYTES) if needed <= own else (own, own)
