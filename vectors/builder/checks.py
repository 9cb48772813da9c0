"""Who else gives the answers that the vectors expect, and where known implementations differ."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys
from collections import defaultdict
from pathlib import Path

from secure_bloom.validator import (
    CaseResult,
    ExternalProgram,
    SecureBloom,
    load_cases,
    run_cases,
)
from tests.peers import adapter, arrow_rs, parquet_java
from tests.peers.process import PeerUnavailable
from vectors.builder.differences import reason, unused


def peers() -> dict[str, str]:
    """The adapter of each other implementation, by its name and version."""
    return {
        f"parquet-java {parquet_java.version()}": "parquet-java",
        f"Arrow C++ {importlib.metadata.version('pyarrow')}": "arrow-cpp",
        f"parquet-java {parquet_java.NEWEST}": "newest-parquet-java",
        f"arrow-rs {arrow_rs.version()}": "arrow-rs",
    }


def implementations() -> dict[str, SecureBloom | ExternalProgram]:
    """How to ask each implementation that is available, by its name and version."""
    found: dict[str, SecureBloom | ExternalProgram] = {
        f"secure_bloom {importlib.metadata.version('secure_bloom')}": SecureBloom()}
    for name, peer in peers().items():
        try:
            found[name] = program(peer)
        except PeerUnavailable as error:
            if peer not in adapter.FETCHED:
                raise
            print(f"{name} is not asked, and what it answered before is dropped: {error}",
                  file=sys.stderr)
    return found


def program(name: str) -> ExternalProgram:
    """The program that is an adapter."""
    return ExternalProgram(shlex.join(adapter.command(name)))


def ask_all(folder: Path, layers: list[str]) -> dict[str, list[CaseResult]]:
    """The results of every implementation."""
    cases = load_cases(folder, layers)
    results = {}
    for name, implementation in implementations().items():
        with implementation as asked:
            results[name] = run_cases(cases, asked)
    return results


def checked_by(results: dict[str, list[CaseResult]]) -> dict[str, list[str]]:
    """For each case the implementations that agree, without the one that has made it."""
    checked = defaultdict(list)
    for name, own in results.items():
        for result in own:
            if _agrees(result) and name not in result.case.origin:
                checked[result.case.name].append(name)
    return checked


def _agrees(result: CaseResult) -> bool:
    """Whether the answer is the expected one, or a refusal under another word, there or before."""
    case = result.case
    return result.result == "passed" or (
        {result.outcome, case.outcome} <= case.description.refusals
        and (result.output == case.output or result.output.get("at") == "footer"))


def differences(results: dict[str, list[CaseResult]]) -> list[dict]:
    """The cases that implementations answer otherwise, grouped by the reason.

    Raises
    ------
    LookupError
        If nobody has written down why, or a reason explains nothing.
    """
    groups, found = defaultdict(list), defaultdict(set)
    for name, own in results.items():
        peer = name.rpartition(" ")[0]
        for result in own:
            if result.result == "failed":
                why = reason(peer, result.case.name)
                groups[name, why].append(result)
                found[peer].add(why)
    if idle := unused(found):
        raise LookupError(f"reasons for what does not happen: {'; '.join(idle)}")
    return [{"implementation": name, "why": why,
             "cases": {result.case.name: answer_of(result) for result in group}}
            for (name, why), group in groups.items()]


def answer_of(result: CaseResult) -> str:
    """What was answered, in a word or two."""
    return result.outcome if result.outcome not in (None, result.case.outcome) \
        else "no answer" if result.outcome is None else "another value"


def table(groups: list[dict]) -> str:
    """The differences as a Markdown table."""
    lines = ["| implementation | cases | why |", "|---|---|---|"]
    lines += [f"| {group['implementation']} | {len(group['cases'])}: {_examples(group['cases'])} "
              f"| {group['why']} |" for group in groups]
    return "\n".join(lines)


def _examples(cases: dict[str, str]) -> str:
    names = [f"`{name}`" for name in cases]
    return ", ".join(names[:2]) + (", ..." if names[2:] else "")


