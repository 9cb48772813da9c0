"""The Java side of a Spark application: our class in it, and options that only this class can open.

Options of a read or a write are visible: in the UI, in the event log, in the catalog. So keys in
them are sealed. The class generates a key pair in the JVM of the driver. The private key is stored
in the Hadoop configuration of the application, which is sent with each job, under a name that Spark
redacts wherever it shows settings. Python seals with the public key. No key is ever passed between
Python and the JVM in plaintext, so none is in the debug log of py4j either.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from secure_bloom.arguments import checks_arguments
from secure_bloom.errors import SecureBloomError, UnsupportedError, needs_extra
from secure_bloom.keys.kms import wrap_locally
from secure_bloom.policy.environment import environment_policy
from secure_bloom.policy.policy import as_policy
from secure_bloom.spark.classic import SHARED
from secure_bloom.spark.java import build_jar
from secure_bloom.spark.native.policies import policy_option
from secure_bloom.storage.table_formats import is_deletion_vector

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from pyspark.sql import SparkSession

    from secure_bloom.policy.policy import Policy
    from secure_bloom.storage.files import FilePath

FACTORY = "secure_bloom.spark.NativeCrypto"
FACTORY_OPTION = "parquet.crypto.factory.class"
WRITE = "secure_bloom.native.write"
READ = "secure_bloom.native.read"
FORMAT_VERSION = 1  #: of the sealed content

_RULES = ("secure_bloom.spark.BoundOptions", "secure_bloom.spark.UnusedRules")  # of the optimizer
_SOURCES = tuple((__package__, name) for name in (
    "Sealed.java", "Keys.java", "Policies.java", "DeltaTables.java", "NativeCrypto.java",
    "BoundOptions.java", "UnusedRules.java"))
_POLICY = "spark.secure_bloom.native.policy"  # Spark sends settings of this prefix to tasks
_PLAINTEXT = "secure_bloom.native.plaintext"
_PUBLIC_KEY = "secure_bloom.native.public.key"
_PRIVATE_KEY = "secure_bloom.native.secret.key"
_REDACTION = "spark.redaction.regex"
_TASKS_PER_CORE = 4


@checks_arguments
def enable(spark: SparkSession, *, plaintext: bool = False,
           policy: Policy | FilePath | None = None) -> None:
    """Install the class that provides our keys to Spark's own Parquet writer and reader.

    Call this once per session; repeated calls are harmless. The class is compiled by Spark's own
    compiler and sent to the executors.

    From then on, a Parquet write of the session without encryption fails, because Spark drops
    options in some cases: see the page "Spark's own Parquet writer and reader". In the whole
    application, columns whose metadata names a master key (``secure_bloom.key``) are encrypted with
    it, or the write fails.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A classic session. Spark Connect does not provide access to the JVM.
    plaintext : bool
        Allow Parquet writes without encryption. If false, a write without encryption must set its
        option ``plaintext`` to ``true``.
    policy : Policy, str or path, optional
        Which columns must be encrypted; see the page "One policy for all files". From then on, a
        Parquet write of the session fails if a file would not meet it, or if options of the write
        would replace this class or the policy. Default: the policy of an earlier call stays;
        without one, that of the environment.

    Raises
    ------
    PolicyError
        If the policy is not valid.
    UnsupportedError
        If the session is a Spark Connect session; if the session or the whole application has
        another ``parquet.crypto.factory.class``; if Spark would show the application's private key.

    Examples
    --------
    >>> native.enable(spark, policy="policy.toml")  # doctest: +SKIP
    """
    context = _java_context(spark)
    found = as_policy(policy)
    conf = context._jsc.hadoopConfiguration()
    _check_configuration(spark)
    if conf.get(_PUBLIC_KEY) is None:
        jar = build_jar(context, "secure-bloom-native.jar", (*SHARED, *_SOURCES))
        context._jsc.addJar(jar)
        _class_loader(spark).addURL(context._jvm.java.io.File(jar).toURI().toURL())
        # Otherwise the configuration uses the class loader from the time of its creation.
        conf.setClassLoader(_class_loader(spark))
        _factory(spark).publicKey(conf)
    for name in _RULES:
        _new(spark, name).install(cast("Any", spark)._jsparkSession)
    if found is None and spark.conf.get(_POLICY, None) is None:
        found = environment_policy()
    if found is not None:
        spark.conf.set(_POLICY, policy_option(found))
    conf.set(FACTORY_OPTION, FACTORY)
    spark.conf.set(_PLAINTEXT, str(plaintext).lower())


class Application:
    """A Spark application in which :func:`enable` was called.

    Raises SecureBloomError if :func:`enable` was not called.
    """

    def __init__(self, spark: SparkSession):
        self._spark: Any = spark  # including its Java attributes
        self._context = _java_context(spark)
        public_key = self._context._jsc.hadoopConfiguration().get(_PUBLIC_KEY)
        if public_key is None:
            raise SecureBloomError("call native.enable(spark) first")
        self._public_key = cast("RSAPublicKey", load_der_public_key(base64.b64decode(public_key)))

    @classmethod
    def active(cls) -> Application:
        """Return the application of the active session."""
        session = _session_class()
        from pyspark.errors import PySparkRuntimeError
        try:
            return cls(session.active())
        except PySparkRuntimeError:
            raise SecureBloomError("there is no Spark session: create one, and call "
                                   "native.enable(spark)") from None

    def seal(self, option: str, content: dict[str, Any]) -> str:
        """Seal the value of an option so that only this application can open it.

        The result is RSA-OAEP of a new key, a dot, and the content as JSON under that key, wrapped
        by :func:`~secure_bloom.keys.kms.wrap_locally` with the option's name as AAD.
        """
        key = os.urandom(32)
        protected = self._public_key.encrypt(key, OAEP(MGF1(SHA256()), SHA256(), None))
        text = json.dumps({"version": FORMAT_VERSION, **content}).encode()
        return f"{base64.b64encode(protected).decode()}.{wrap_locally(key, text, option.encode())}"

    def files(self, path: str | Iterable[str]) -> list[str]:
        """List the files that Spark reads at a path, as URIs."""
        paths = [path] if isinstance(path, str | os.PathLike) else path
        reader = self._spark.read.option("recursiveFileLookup", "true").schema("unused boolean")
        frame = reader.parquet(*map(os.fspath, paths))
        files = _lines(_factory(self._spark).join(frame._jdf.inputFiles()))
        return [file for file in files if not is_deletion_vector(file)]

    def collect_key_material(self, files: list[str], keys: dict[str, str]) -> list[dict[str, Any]]:
        """Collect, on the executors, the key material in the footers that has no known key yet.

        Parameters
        ----------
        files : list of str
            URIs.
        keys : dict of str to str
            Base64 of the known keys, by their wrapped form.

        Returns
        -------
        list of dict
            ``material`` and ``file``: key material whose key is not in ``keys``. ``hidden``,
            ``error`` and ``kind``: a file that could not be opened; the kind of the error is
            ``keys``, ``tag`` (not authentic), ``format`` or ``io``.
        """
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()
        conf.set(READ, self.seal(READ, {"keys": keys}))
        tasks = min(len(files), _TASKS_PER_CORE * self._context.defaultParallelism)
        lines = _lines(_factory(self._spark).collect(self._context._jsc, conf, "\n".join(files),
                                                     tasks))
        return [json.loads(line) for line in sorted(set(lines))]


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _session_class() -> Any:
    with needs_extra("secure_bloom.spark.native needs PySpark 4.0 or newer", "spark"):
        from pyspark.sql import SparkSession
    return SparkSession


def _java_context(spark: SparkSession) -> Any:
    """Return the SparkContext of a session, with access to the JVM."""
    _session_class()
    if not hasattr(spark, "_jsparkSession"):
        raise UnsupportedError(
            "this is a Spark Connect session, which does not provide access to the JVM: use the "
            'format "secure_parquet" (secure_bloom.spark.register), or a classic session')
    return spark.sparkContext


def _class_loader(spark: Any) -> Any:
    return spark._jsparkSession.sharedState().jarClassLoader()


def _factory(spark: Any) -> Any:
    return _new(spark, FACTORY)


def _new(spark: Any, name: str) -> Any:
    """Create an object of our class, with an explicit loader: py4j's threads have their own."""
    return _class_loader(spark).loadClass(name).newInstance()


def _check_configuration(spark: Any) -> None:
    context = spark.sparkContext
    other = spark._jsparkSession.sessionState().newHadoopConf().get(FACTORY_OPTION)
    if other not in (None, FACTORY):
        raise UnsupportedError(f"{FACTORY_OPTION} is set to {other} for the whole session, so our "
                               "class would not see what is written: set it only on reads and "
                               "writes")
    pattern = context.getConf().get(_REDACTION)
    if pattern is not None and not context._jvm.java.util.regex.Pattern.compile(pattern).matcher(
            _PRIVATE_KEY).find():
        raise UnsupportedError(f"{_REDACTION} is {pattern!r}, so Spark would show {_PRIVATE_KEY} "
                               "in its UI and event log: make it match the word secret, as the "
                               "default does")
