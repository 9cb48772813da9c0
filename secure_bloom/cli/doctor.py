"""The command ``doctor``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import click

import secure_bloom
from secure_bloom.cli import shared
from secure_bloom.display import count
from secure_bloom.errors import installation

_OLDEST_JAVA = 17  # that Spark 4 runs on
_JAVA_VERSION = re.compile(r'version "(?:1\.)?([0-9]{1,9})')
_SECONDS = 30  # Java takes about one to print its version
_MARKS = {"ok": "ok", "note": "-", "problem": "PROBLEM"}


@dataclass(frozen=True)
class Outcome:
    """What was found out about one thing that secure_bloom uses.

    Attributes
    ----------
    subject : str
    state : {"ok", "note", "problem"}
        A note is about something optional.
    detail : str
    remedy : str
        What to do about it; empty if nothing.
    """

    subject: str
    state: Literal["ok", "note", "problem"]
    detail: str
    remedy: str = ""


@click.command(short_help="Check the installation: packages, kernels, Spark, keys.")
@shared.kms_options_opened_later
@click.option("--key", metavar="NAME", help="Master key to try: it wraps and unwraps a random key.")
@shared.json_option
@click.pass_context
def doctor(ctx: click.Context, kms: shared.OpenKms, key: str | None, as_json: bool) -> None:
    """Check what secure_bloom needs on this machine, and say how to fix problems.

    Nothing is changed. With --key, the KMS is asked to wrap and unwrap a random key; without it,
    the KMS is only opened.

    Exit code 0: there are no problems (optional parts may be missing); 1: there are problems.
    """
    findings = [*_python(), _kernels(), *_extras(), *_spark(), *_keys(kms, key)]
    problems = [one for one in findings if one.state == "problem"]
    summary = count(len(problems), "problem") if problems else "no problems"
    shared.show(as_json, {"findings": [asdict(one) for one in findings], "ok": not problems},
                lambda: "\n".join([*map(_line, findings), summary]))
    ctx.exit(shared.BAD if problems else 0)


def _line(one: Outcome) -> str:
    remedy = f"\n{'':8}  {one.remedy}" if one.remedy else ""
    return f"{_MARKS[one.state]:8}{one.subject}: {one.detail}{remedy}"


def _python() -> Iterator[Outcome]:
    yield Outcome("secure_bloom", "ok", f"{secure_bloom.__version__}, Python "
                  f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in _required():
        yield _package(name, f"pip install --upgrade {name}", is_required=True)


def _required() -> list[str]:
    """Return the packages that secure_bloom cannot do without."""
    requirements = importlib.metadata.requires("secure_bloom") or []
    return sorted(re.split(r"[^\w.-]", text)[0] for text in requirements if "extra" not in text)


def _package(name: str, remedy: str, *, is_required: bool) -> Outcome:
    try:
        return Outcome(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Outcome(name, "problem" if is_required else "note", "not installed", remedy)


def _kernels() -> Outcome:
    from secure_bloom.sbbf.kernel_choice import chosen
    choice = chosen()
    if choice.reason:
        return Outcome("kernels", "problem", f"numpy, which is slower: {choice.reason}",
                       "install a wheel, or build the package with numba installed: "
                       "pip install --force-reinstall --no-deps . in its sources")
    return Outcome("kernels", "ok", choice.name)


def _extras() -> Iterator[Outcome]:
    for extra, package, purpose in (
            ("aws", "boto3", "keys in AWS KMS"),
            ("azure", "azure-identity", "keys in Azure Key Vault"),
            ("azure", "azure-keyvault-keys", "keys in Azure Key Vault"),
            ("gcp", "google-cloud-kms", "keys in Google Cloud KMS"),
            ("gcp", "google-crc32c", "keys in Google Cloud KMS"),
            ("vault", "urllib3", "keys in HashiCorp Vault"),
            ("pkcs11", "python-pkcs11", "keys in an HSM"), ("lance", "pylance", "Lance indexes"),
            ("polars", "polars", "scans with Polars"), ("spark", "pyspark", "Spark")):
        yield _package(package, f"for {purpose}: {installation(extra)}", is_required=False)


def _spark() -> Iterator[Outcome]:
    if _package("pyspark", "", is_required=False).state != "ok":
        return
    yield _java()
    from secure_bloom.spark.worker_python import fault
    python = os.environ.get("PYSPARK_PYTHON") or "python3"
    why = fault(python)
    if why is None:
        yield Outcome("Python of Spark's workers", "ok", shutil.which(python) or python)
    else:
        yield Outcome("Python of Spark's workers", "note", f"{python} {why}",
                      f"in local mode, {sys.executable} is used instead; on a cluster, set "
                      "PYSPARK_PYTHON to a Python that has it")


def _java() -> Outcome:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    remedy = (f"install Java {_OLDEST_JAVA} or newer, such as openjdk-{_OLDEST_JAVA}-jre-headless, "
              "and set JAVA_HOME to its folder")
    if java is None:
        return Outcome("Java", "problem", "there is no java on the PATH, and JAVA_HOME is not set",
                       remedy)
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True,
                              errors="replace", timeout=_SECONDS, stdin=subprocess.DEVNULL).stderr
    except (OSError, subprocess.TimeoutExpired):
        return Outcome("Java", "problem", f"{java} cannot be run", remedy)
    version = _JAVA_VERSION.search(text)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        return Outcome("Java", "problem",
                       f"{java} is Java {version[1] if version else 'of an unknown version'}",
                       remedy)
    return Outcome("Java", "ok", f"{version[1]}, {java}")


def _keys(open_kms: shared.OpenKms, key: str | None) -> Iterator[Outcome]:
    data_key = secrets.token_bytes(16)
    try:
        kms = open_kms()
        if kms is None:
            yield Outcome("keys", "note", "no KMS is named", "use --keys, or set "
                          "SECURE_BLOOM_KEYRING or SECURE_BLOOM_KMS")
            return
        client: Any = getattr(kms, "client", kms)  # that of the environment is opened here
        kind = type(client).__name__
        if key is None:
            yield Outcome("keys", "ok", f"{kind} was opened; try a master key with --key")
            return
        unwrapped = client.unwrap_key(client.wrap_key(data_key, key), key)
    except click.ClickException:  # wrong usage
        raise
    except Exception as error:  # a KMS of another package may raise any
        yield Outcome("keys", "problem", str(error) or type(error).__name__,
                      "check the name of the key, the address of the KMS or path of the keyring, "
                      "and that you may use the key to wrap and unwrap")
        return
    if unwrapped == data_key:
        yield Outcome("keys", "ok", f"{kind} wraps and unwraps with {key!r}")
    else:
        yield Outcome("keys", "problem", f"{kind} unwrapped another key than was wrapped with "
                      f"{key!r}", "do not write files with this KMS: they could not be read")
