"""Another implementation, queried over its standard input and output.

One tab-separated line per case; see ``vectors/README.md``, "Running", for the protocol.
"""

from __future__ import annotations

import contextlib
import queue
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from threading import Thread
from typing import Any

from secure_bloom.validator.cases import Case

TIMEOUT = 60.0  #: seconds that a program has to answer
_TIME_TO_END = 5.0  # seconds, after its input has ended


class Skipped(Exception):
    """The program does not implement what a case tests."""


class BadReply(Exception):
    """The program died, did not answer in time, or sent an invalid reply."""


class ExternalProgram:
    """A program that implements the protocol; a context manager.

    It is started on entering the block, and restarted after a crash or timeout.

    Parameters
    ----------
    command : str
        The program and its arguments, quoted as for a shell.
    """

    def __init__(self, command: str, *, timeout: float = TIMEOUT):
        self.name = command
        self._command = shlex.split(command)
        self._timeout = timeout
        self._process: _LineProcess | None = None

    def answer(self, case: Case) -> tuple[str, dict[str, Any]]:
        """Return the outcome and output for the input of a case.

        Raises
        ------
        Skipped, BadReply
        """
        if self._process is None:
            self._process = _LineProcess(self._command)
        try:
            reply = self._process.ask(_request(case), self._timeout)
        except BadReply:
            self.close()
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
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def __enter__(self) -> ExternalProgram:
        self._process = _LineProcess(self._command)  # here, so that an invalid command fails early
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


# --- the process ---------------------------------------------------------------------------------

class _LineProcess:
    """A program that answers each input line with an output line."""

    def __init__(self, command: list[str]):
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the program runs
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._log, text=True, encoding="utf-8",
                                         errors="replace")
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._output:
            self._replies.put(line)
        self._replies.put("")

    def ask(self, line: str, timeout: float) -> str:
        if not self._replies.empty() and self._process.poll() is None:
            raise BadReply("the program wrote more than one line for the previous case")
        try:
            self._input.write(line + "\n")
            self._input.flush()
            reply = self._replies.get(timeout=timeout)
        except OSError:  # a broken pipe: the program died before reading the line
            reply = ""
        except queue.Empty:
            raise BadReply(f"no response within {timeout:g} seconds") from None
        if not reply:
            raise BadReply(f"the program ended (exit code {self._process.wait()}) {self._tail()}")
        return reply.rstrip("\r\n")

    def _tail(self) -> str:
        """The end of what the program wrote to standard error."""
        self._log.seek(0)
        return self._log.read()[-1000:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Close the input, which should end the program; kill it if it keeps running."""
        with contextlib.suppress(OSError):  # it died before reading all of its input
            self._input.close()
        try:
            self._process.wait(_TIME_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
