"""Run test vectors against an implementation and compare answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from secure_bloom.validator.cases import Case
from secure_bloom.validator.external import Skipped
from secure_bloom.validator.line_process import BadReply

_MAX_MESSAGE = 2000  # characters; a program may send any text

RESULTS = PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Implementation(Protocol):
    """An implementation that answers test vectors."""

    name: str

    def answer(self, case: Case) -> tuple[str, dict[str, Any]]:
        """Return the outcome and output for the input of a case."""


@dataclass(frozen=True)
class CaseResult:
    """The result of running one case against an implementation.

    Attributes
    ----------
    case : Case
    result : str
        ``passed``, ``failed`` or ``skipped``.
    outcome : str or None
        The returned outcome; None if there was no answer.
    output : dict
        The returned output.
    message : str
        What differs, or why there is no answer.
    seconds : float
    """

    case: Case
    result: str
    outcome: str | None
    output: dict[str, Any]
    message: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        return {"name": self.case.name, "layer": self.case.layer, "result": self.result,
                "expected": self.case.outcome, "answered": self.outcome, "message": self.message}


def run_cases(cases: Iterable[Case], implementation: Implementation,
              advance: Callable[[float], None] = lambda done: None) -> list[CaseResult]:
    """Run every case against an implementation.

    Parameters
    ----------
    cases : iterable of Case
    implementation : SecureBloom, ExternalProgram, or the like
    advance : callable
        Called with the completed fraction after each case.
    """
    cases, results = list(cases), []
    for case in cases:
        results.append(_run(case, implementation))
        advance(len(results) / len(cases))
    return results


def _run(case: Case, implementation: Implementation) -> CaseResult:
    start = time.perf_counter()
    outcome: str | None = None
    output: dict[str, Any] = {}
    try:
        outcome, output = implementation.answer(case)
        message = _unequal("", case.output, output) if outcome == case.outcome \
            else f"expected {case.outcome}, got {outcome}"
        result = FAILED if message else PASSED
    except Skipped as skipped:
        result, message = SKIPPED, str(skipped)
    except BadReply as error:
        result, message = FAILED, str(error)
    except Exception as error:  # a bug in the implementation fails the case, not the run
        result, message = FAILED, f"{type(error).__name__}: {error}"
    return CaseResult(case, result, outcome, output, _short(message, _MAX_MESSAGE),
                      time.perf_counter() - start)


def _unequal(place: str, expected: Any, got: Any) -> str:
    """Describe the first difference between two values; empty if they are equal."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        pairs = [(f"{place}.{name}".lstrip("."), expected[name], got[name]) for name in expected]
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = [(f"{place}[{i}]", *both) for i, both in enumerate(zip(expected, got, strict=True))]
    elif _same(expected, got):
        return ""
    else:
        return f"{place}: expected {_short(expected)}, got {_short(got)}"
    return next((text for pair in pairs if (text := _unequal(*pair))), "")


def _same(expected: Any, got: Any) -> bool:
    if float in (kinds := {type(expected), type(got)}) and kinds <= {float, int}:
        return math.isclose(expected, got, rel_tol=1e-6)
    return len(kinds) == 1 and expected == got


def _short(value: object, length: int = 80) -> str:
    text = str(value)
    return text if len(text) <= length else f"{text[:length - 3]}..."
