"""The findings of an audit as SARIF 2.1.0, which code-scanning tools read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from secure_bloom import __version__
from secure_bloom.auditing.result import KINDS, AuditResult
from secure_bloom.findings import Finding

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(result: AuditResult) -> dict[str, Any]:
    """Return one SARIF run, with a rule for each kind of finding.

    Whatever was not checked becomes a notification, as does the absence of any encrypted file.
    """
    rules = list(KINDS)
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{
        "tool": {"driver": {"name": "secure-bloom", "version": __version__, "rules": [
            {"id": kind, "shortDescription": {"text": title},
             "defaultConfiguration": {"level": severity}}
            for kind, (severity, title) in KINDS.items()]}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": [
            *([{"level": "warning", "message": {"text": result.summary}}]
              if result.lacks_encryption else []),
            *({"level": "note", "message": {"text": f"not checked: {what}"},
               "locations": [_file(file.file)]}
              for file in result.files for what in file.not_checked)]}],
        "results": [_result(finding, rules.index(finding.kind)) for finding in result.findings]}]}


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    text = ". ".join([finding.message, *finding.evidence, finding.remedy])
    location = _file(finding.file)
    if finding.column is not None:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.column, "kind": "member"}]
    return {"ruleId": finding.kind, "ruleIndex": rule, "level": finding.severity,
            "message": {"text": text}, "locations": [location],
            "properties": {"rowGroups": list(finding.row_groups)}}


def _file(path: str) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}}}


def _uri(path: str) -> str:
    """A relative URI for files below the working directory, as code-scanning tools expect."""
    if not os.path.isabs(path):
        return quote(path)  # a path in an object store
    try:
        return quote(os.path.relpath(path)) if Path(path).is_relative_to(Path.cwd()) \
            else Path(path).as_uri()
    except ValueError:
        return quote(path)
