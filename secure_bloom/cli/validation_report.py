"""The results of running test vectors: as text, as JSON, and as JUnit XML."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from secure_bloom.cli.tables import render_table
from secure_bloom.validator.cases import LAYERS
from secure_bloom.validator.run import FAILED, PASSED, RESULTS, CaseResult


def summary(results: list[CaseResult], implementation: str) -> dict[str, Any]:
    """The results as a plain dictionary, for JSON."""
    return {"implementation": implementation, "total": len(results),
            **{result: _count(results, result) for result in RESULTS},
            "cases": [result.to_json() for result in results]}


def _count(results: list[CaseResult], result: str, layer: str | None = None) -> int:
    return sum(r.result == result and layer in (None, r.case.layer) for r in results)


def layer_table(results: list[CaseResult]) -> list[list[Any]]:
    """For each layer with cases: its name, and the numbers of cases, passed, failed, skipped."""
    counts = [(layer, [_count(results, result, layer) for result in RESULTS]) for layer in LAYERS]
    return [[layer, sum(row), *row] for layer, row in counts if sum(row)]


def render(results: list[CaseResult], implementation: str) -> str:
    """The results as text: a table of the layers, and the failed cases."""
    rows = layer_table(results)
    total = ["all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])]
    table = render_table(["layer", "cases", *RESULTS], [*rows, total])
    failures = [f"  {result.case.layer} {result.case.name}: {result.message}"
                + (f"\n    the fault: {result.case.fault}" if result.case.fault else "")
                for result in results if result.result == FAILED]
    return "\n".join([implementation, "", table, *([""] if failures else []), *failures])


def junit(results: list[CaseResult], implementation: str) -> str:
    """The results as JUnit XML, which CI servers read."""
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
    """Replace control characters: XML cannot represent them, but a program may have sent some."""
    return "".join(c if c.isprintable() else "?" for c in text)
