"""Run test vectors against an implementation and compare answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol
from xml.etree import ElementTree

from secure_bloom.cli.report import render_table
from secure_bloom.validator.cases import LAYERS, Case
from secure_bloom.validator.external import BadReply, Skipped

RESULTS = PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Implementation(Protocol):
    """Who answers test vectors."""

    name: str

    def answer(self, case: Case) -> tuple[str, dict]:
        """Outcome and output for the input of a case."""


@dataclass(frozen=True)
class CaseResult:
    """How an implementation did on one case.

    Attributes
    ----------
    case : Case
    result : str
        ``passed``, ``failed`` or ``skipped``.
    outcome : str or None
        What was answered; None where there was no answer.
    output : dict
        What came with it.
    message : str
        What differs, or why there was no answer.
    seconds : float
    """

    case: Case
    result: str
    outcome: str | None
    output: dict
    message: str
    seconds: float

    def to_json(self) -> dict:
        """A plain dictionary."""
        return {"name": self.case.name, "layer": self.case.layer, "result": self.result,
                "expected": self.case.outcome, "answered": self.outcome, "message": self.message}


def run_cases(cases: Iterable[Case], implementation: Implementation,
              advance: Callable[[float], None] = lambda done: None) -> list[CaseResult]:
    """Ask an implementation every case.

    Parameters
    ----------
    cases : iterable of Case
    implementation : SecureBloom, ExternalProgram, or the like
    advance : callable
        Gets the share that is done, after each case.
    """
    cases, results = list(cases), []
    for case in cases:
        results.append(_run(case, implementation))
        advance(len(results) / len(cases))
    return results


def _run(case: Case, implementation: Implementation) -> CaseResult:
    start = time.perf_counter()
    outcome, output = None, {}
    try:
        outcome, output = implementation.answer(case)
        message = _difference(case, outcome, output)
        result = FAILED if message else PASSED
    except Skipped as skipped:
        result, message = SKIPPED, str(skipped)
    except BadReply as error:
        result, message = FAILED, str(error)
    except Exception as error:  # a fault of the implementation is a failed case, not the end
        result, message = FAILED, f"{type(error).__name__}: {error}"
    return CaseResult(case, result, outcome, output, message, time.perf_counter() - start)


def _difference(case: Case, outcome: str, output: dict) -> str:
    """What is not as expected; empty where nothing is."""
    if outcome != case.outcome:
        return f"expected {case.outcome}, got {outcome}"
    return _unequal("", case.output, output)


def _unequal(place: str, expected, got) -> str:
    """Where two values differ first."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        pairs = [(f"{place}.{name}".lstrip("."), expected[name], got[name]) for name in expected]
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = [(f"{place}[{i}]", *both)
                 for i, both in enumerate(zip(expected, got, strict=True))]
    elif _same(expected, got):
        return ""
    else:
        return f"{place}: expected {_short(expected)}, got {_short(got)}"
    return next((text for pair in pairs if (text := _unequal(*pair))), "")


def _same(expected, got) -> bool:
    if float in (kinds := {type(expected), type(got)}) and kinds <= {float, int}:
        return math.isclose(expected, got, rel_tol=1e-6)
    return len(kinds) == 1 and expected == got


def _short(value) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- reports -------------------------------------------------------------------------------------

def summary(results: list[CaseResult], implementation: str) -> dict:
    """The results as a plain dictionary, for JSON."""
    return {"implementation": implementation, "total": len(results),
            **{result: _count(results, result) for result in RESULTS},
            "cases": [result.to_json() for result in results]}


def _count(results: list[CaseResult], result: str, layer: str | None = None) -> int:
    return sum(r.result == result and layer in (None, r.case.layer) for r in results)


def layer_table(results: list[CaseResult]) -> list[list]:
    """For each layer that has cases: its name, and how many there are, passed, failed, skipped."""
    counts = [[layer, *(_count(results, result, layer) for result in RESULTS)]
              for layer in LAYERS]
    return [[layer, sum(row), *row] for layer, *row in counts if sum(row)]


def render(results: list[CaseResult], implementation: str) -> str:
    """The results for people: a table of the layers, and what failed."""
    rows = layer_table(results)
    total = ["all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])]
    table = render_table(["layer", "cases", *RESULTS], [*rows, total])
    failures = [f"  {result.case.layer} {result.case.name}: {result.message}"
                + (f"\n    the fault: {result.case.fault}" if result.case.fault else "")
                for result in results if result.result == FAILED]
    return "\n".join([implementation, "", table, *([""] if failures else []), *failures])


def junit(results: list[CaseResult], implementation: str) -> str:
    """The results in the XML that build servers read."""
    root = ElementTree.Element("testsuites", name=f"test vectors against {implementation}")
    for layer, total, _, failed, skipped in layer_table(results):
        own = [result for result in results if result.case.layer == layer]
        suite = ElementTree.SubElement(
            root, "testsuite", name=layer, tests=str(total), failures=str(failed),
            skipped=str(skipped), time=f"{sum(result.seconds for result in own):.3f}")
        for result in own:
            element = ElementTree.SubElement(suite, "testcase", classname=layer,
                                             name=result.case.name, time=f"{result.seconds:.3f}")
            if result.result != PASSED:
                tag = "failure" if result.result == FAILED else "skipped"
                ElementTree.SubElement(element, tag, message=_xml_text(result.message))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _xml_text(text: str) -> str:
    """XML has no way to write control characters, which a program may have sent."""
    return "".join(c if c.isprintable() else "?" for c in text)
