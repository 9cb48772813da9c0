"""What docs say about versions of peers, and reports in docs/peers that need a peer."""

import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.doc_examples import check_outputs
from tests.peers import arrow_rs, parquet_cli, parquet_java
from tests.peers.fixtures import available
from tests.peers.process import find_tool

DOCS = Path(__file__).parents[2] / "docs"
REPORT = DOCS / "peers" / "arrow-rs-plaintext-filters.md"


def test_docs_name_the_versions_that_are_tried():
    page = (DOCS / "compatibility.md").read_text(encoding="utf-8")
    assert f"| arrow-rs {arrow_rs.version()} |" in page
    assert f"the Rust crate `parquet`, version {arrow_rs.version()}." in page
    assert f", {parquet_java.NEWEST} |" in page
    assert f"| parquet-cli {parquet_cli.VERSION} |" in page
    assert f"command line, version {parquet_cli.VERSION}," in page
    assert f"`parquet` {arrow_rs.version()}." in REPORT.read_text(encoding="utf-8")


@pytest.mark.sweep
def test_the_report_about_arrow_cpp_shows_what_happens(tmp_path: Path):
    page = (DOCS / "peers" / "arrow-cpp-size-statistics.md").read_text(encoding="utf-8")
    assert f"pyarrow {version('pyarrow')}." in page
    check_outputs(page, tmp_path)


@pytest.mark.sweep
def test_the_report_about_parquet_java_shows_what_happens(tmp_path: Path):
    page = (DOCS / "peers" / "parquet-java-size-statistics.md").read_text(encoding="utf-8")
    assert f"parquet-java {parquet_java.version()}," in page
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    (tmp_path / "SizeStatistics.java").write_text(blocks["java"])
    done = subprocess.run(
        [find_tool("java"), "-cp", str(parquet_java.jars() / "*"), "SizeStatistics.java"],
        cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, blocks["text"]), done.stderr


@pytest.mark.fetched
def test_the_report_about_arrow_rs_shows_what_happens(tmp_path: Path):
    available(arrow_rs.command, is_fetched=True)  # its crates are compiled already
    report = REPORT.read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", report, re.MULTILINE | re.DOTALL))
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text(blocks["toml"])
    (tmp_path / "src" / "main.rs").write_text(blocks["rust"])
    shutil.copy(arrow_rs.PACKAGE / "Cargo.lock", tmp_path)
    done = subprocess.run(
        ["cargo", "run", "--quiet", "--offline", "--release", "--target-dir", arrow_rs.TARGET],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1"},  # as those crates are
    )
    assert (done.returncode, done.stdout) == (0, blocks["text"]), done.stderr
