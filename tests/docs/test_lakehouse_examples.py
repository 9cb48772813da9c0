"""Programs of docs/lakehouse.md and docs/peers that need delta-rs, but not Spark."""

import pytest

from tests.doc_examples import check_outputs, run_examples
from tests.docs.pages import ROOT, section

pytestmark = pytest.mark.slow
DELTA = section("lakehouse.md", "Delta Lake")


def test_files_of_secure_bloom_as_a_delta_table_and_an_audit(tmp_path):
    pytest.importorskip("deltalake")
    made, appended, audited = run_examples(DELTA, tmp_path)
    assert made.stdout in DELTA and appended.stdout == ""
    assert "error (unencrypted)" in audited.stdout and "a live file" in audited.stdout


def test_delta_rs_appends_plaintext(tmp_path):
    pytest.importorskip("deltalake")
    check_outputs((ROOT / "docs" / "peers" / "delta-rs-plaintext-append.md").read_text(), tmp_path)
