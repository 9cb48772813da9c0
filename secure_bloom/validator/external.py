"""Another implementation, queried over its standard input and output.

One tab-separated line per case; see ``vectors/README.md``, "Running", for the protocol.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

from secure_bloom.validator.cases import Case
from secure_bloom.validator.line_process import BadReply, LineProcess

TIMEOUT = 60  #: seconds that a program has to answer
_MAX_REPLY = 16 * 1024  # bytes; more only if the expected output is long


class Skipped(Exception):
    """The program does not implement what a case tests."""


class ExternalProgram:
    """A program that implements the protocol; a context manager.

    It is started on entering the block. After a crash, a timeout or too much output it is killed
    with its children, and restarted for the next case.

    Parameters
    ----------
    command : str
        The program and its arguments, quoted as for a shell.
    timeout : float
        Seconds that it has to answer a case.
    """

    def __init__(self, command: str, *, timeout: float = TIMEOUT):
        self.name = command
        self._command = shlex.split(command)
        self._timeout = timeout
        self._process: LineProcess | None = None

    def answer(self, case: Case) -> tuple[str, dict[str, Any]]:
        """Return the outcome and output for the input of a case.

        Raises
        ------
        Skipped, BadReply
        """
        if self._process is None:
            self._process = LineProcess(self._command)
        limit = max(_MAX_REPLY, 2 * len(json.dumps(case.output)))  # bytes, wrong replies included
        try:
            reply = self._process.ask(_request(case), self._timeout, limit)
        except BadReply:
            self._stop(kill=True)
            raise
        outcome, *fields = reply.split("\t")
        values = dict(field.partition("=")[::2] for field in fields)
        if len(values) != len(fields):
            raise BadReply("there is a duplicate field")
        if outcome == "skip":
            raise Skipped(values.get("reason", ""))
        kinds = case.description.outcomes.get(outcome)
        if kinds is None:
            raise BadReply(f"unknown outcome {outcome!r}")
        return outcome, _output(case, kinds, values)

    def close(self) -> None:
        """Stop the program."""
        self._stop(kill=False)

    def _stop(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close(kill=kill)

    def __enter__(self) -> ExternalProgram:
        self._process = LineProcess(self._command)  # here, so that an invalid command fails early
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- requests ------------------------------------------------------------------------------------

def _request(case: Case) -> str:
    fields = dict(case.input)
    if case.layer == "files":
        fields = {"path": str(case.path.resolve()), **fields,
                  "probes": [f"{filter_['row_group']}:{filter_['column']}:{probe['plain']}"
                             for filter_ in case.output["filters"] for probe in filter_["probes"]]}
        del fields["file"]
    elif case.layer == "index":
        fields = {"path": str(case.folder.resolve()), **fields}
    return "\t".join([case.layer, case.operation,
                      *(f"{name}={_text(value)}" for name, value in fields.items())])


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        value = [f"{key}:{item}" for key, item in value.items()]
    if isinstance(value, list):
        return "".join(f"{_text(item)}," for item in value)
    return str(value)


# --- replies -------------------------------------------------------------------------------------

def _output(case: Case, kinds: dict[str, str], values: dict[str, str]) -> dict[str, Any]:
    if "filters" in kinds:
        kinds = {**kinds, "filters": "list", "answers": "list"}
    if values.keys() != kinds.keys():
        raise BadReply(f"the fields are {', '.join(values) or 'none'}, "
                       f"not {', '.join(kinds) or 'none'}")
    try:
        output = {name: _value(values[name], kind) for name, kind in kinds.items()}
        return _with_probes(case, output) if "answers" in kinds and "filters" in kinds else output
    except (ValueError, KeyError, IndexError):
        raise BadReply("a value is not of the declared kind") from None


_TRUTH = {"true": True, "false": False}


def _value(text: str, kind: str) -> Any:
    if kind.startswith("list"):
        *items, rest = text.split(",")
        if rest:
            raise ValueError("an item without a comma")
        return [_TRUTH[item] for item in items] if kind == "list-of-bool" else items
    parse: dict[str, Callable[[str], Any]] = {
        "int": int, "number": float, "bool": _TRUTH.__getitem__}
    return parse.get(kind, str)(text)


def _with_probes(case: Case, output: dict[str, Any]) -> dict[str, Any]:
    """Convert the filters of a reply to sidecar form, each with its probes and answers."""
    asked = [((filter_["row_group"], filter_["column"]), probe)
             for filter_ in case.output["filters"] for probe in filter_["probes"]]
    answered: dict[tuple[Any, ...], list[Any]] = {}
    for (place, probe), answer in zip(asked, output.pop("answers"), strict=True):
        answered.setdefault(place, []).append({**probe, "answer": _TRUTH.get(answer)})
    filters = []
    for text in output["filters"]:
        place, protection, num_bytes, digest = text.rsplit(":", 3)
        row_group, column = place.split(":", 1)
        filters.append({"row_group": int(row_group), "column": column,
                        "encrypted": {"encrypted": True, "plain": False}[protection],
                        "num_bytes": int(num_bytes), "sha256": digest,
                        "probes": answered.get((int(row_group), column), [])})
    return {**output, "filters": filters}
