"""Where a report comes from: when, by whom, on which machine, with which command and policy.

The command is put together from a list of options whose values may be seen. Everything else is
``…``: a value that is looked up or erased must not be in a report, and a URI may contain secrets.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Iterable
from datetime import datetime
from html import escape

import click
from click.core import ParameterSource

from secure_bloom import __version__
from secure_bloom.display import without_credentials
from secure_bloom.policy import Policy

#: parameters whose values are shown; flags always are
_SHOWN = {"path", "column", "policy", "keys", "index", "jobs", "report", "html", "sarif", "sign",
          "hash_key"}
_MASK = "…"
_URI = re.compile(r"([a-z][a-z0-9+.-]+):(?!\\)", re.IGNORECASE)
#: schemes whose URIs name a path, with user and query as the only secrets
_PATHS = {"file", "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "keyring"}


def origin(ctx: click.Context, policy_digest: str | None,
           secrets: Iterable[str] = ()) -> dict[str, str | None]:
    """Describe the report that a command is about to write; ``policy_digest`` is a SHA-256.

    ``secrets`` are values that the command must not show: a path may contain one as well.
    """
    return {"time": datetime.now().astimezone().isoformat(timespec="seconds"),
            "operator": _operator(), "host": platform.node(),
            "version": f"secure_bloom {__version__}", "command": command(ctx, secrets),
            "policy_sha256": policy_digest}


def read_policy(path: str | None) -> tuple[Policy | None, str | None]:
    """Read the policy of a command once, with the SHA-256 of exactly these bytes."""
    return (None, None) if path is None else Policy.read_with_digest(path)


def command(ctx: click.Context, secrets: Iterable[str] = ()) -> str:
    """Return the command line, with ``…`` in place of everything that may be a secret."""
    hidden = sorted({one for one in secrets if len(one) > 3}, key=len, reverse=True)
    words = [ctx.command_path]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if ctx.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            continue
        given = [_quoted(word, hidden) for word in _words(ctx, parameter)]
        if isinstance(parameter, click.Argument):
            words += given
        elif getattr(parameter, "is_flag", False):
            words.append(parameter.opts[0])
        else:
            words += [word for value in given for word in (parameter.opts[0], value)]
    return " ".join(words)


def _words(ctx: click.Context, parameter: click.Parameter) -> list[str]:
    value = ctx.params.get(parameter.name or "")
    values = value if isinstance(value, tuple | list) else [value]
    if parameter.name not in _SHOWN:
        return [_MASK] * len(values)
    return [without_secrets(str(getattr(one, "name", one))) for one in values]


def _quoted(word: str, hidden: Iterable[str]) -> str:
    for secret in hidden:  # before quotation marks change it
        word = word.replace(secret, _MASK)
    return word if word == _MASK else shlex.quote(word)


def without_secrets(text: str) -> str:
    """Return a path, or a URI without user, password and parameters."""
    scheme = _URI.match(text)
    if scheme is None or os.path.exists(text):
        return text
    if scheme[1].lower() not in _PATHS:
        return f"{scheme[0]}{_MASK}"
    place, query, _ = text.partition("?")
    place = without_credentials(re.sub(r"//[^/]*@", f"//{_MASK}@", place))
    return place + (query and f"?{_MASK}")


def facts(described: dict[str, str | None]) -> str:
    """Return HTML for the head of a page."""
    labels = {"time": "Time", "operator": "Operator", "host": "Host", "version": "Version",
              "command": "Command", "policy_sha256": "SHA-256 of the policy"}
    return "<dl id=\"origin\">" + "".join(
        f"<dt>{labels[name]}</dt><dd>{escape(value)}</dd>"
        for name, value in described.items() if value) + "</dl>"


def _operator() -> str:
    """Return the user that the process runs as; an environment variable could say anything."""
    if not hasattr(os, "geteuid"):
        import getpass
        return getpass.getuser()
    import pwd
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
