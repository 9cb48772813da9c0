"""The page "Rolling out", over a lake of a thousand files."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.doc_examples import run_examples
from tests.docs.pages import ROOT

pytestmark = pytest.mark.sweep

FILES, ROWS = 999, 100  # besides those that the page writes
_OLD, _ALL = f"{FILES + 1:,}", f"{FILES + 2:,}"
#: what each block prints, in their order; the path of the folder is … there
PRINTED = [
    rf"No file is encrypted: {_OLD} files in …/lake, 2,000 errors, 0 warnings",  # audit
    r"no problems\n1\n",  # doctor, find
    "1 file: 1 meet the policy, 0 do not, 0 not fully checked",
    r"1\n",  # find, with the policy for readers
    rf"{_OLD} files of [\d,]+ bytes would be changed, 1 need no change, 0 failed\n(.*\n)+"
    rf"  ssn +column key pii, new filter +{FILES}\n  ssn +column key pii +1\n  city +open +{_OLD}",
    f"…/lake: {_ALL} files, 0 errors, 0 warnings",
    rf"refused\n{FILES * ROWS + 3}\n",
    "^$",  # decrypt
    rf"{FILES * ROWS + 3}\n"]


def test_every_step_of_the_page_works_for_a_thousand_files(tmp_path):
    folder = tmp_path / "lake" / "people"
    folder.mkdir(parents=True)
    names = [folder / f"{number:03}.parquet" for number in range(FILES)]
    for number, name in enumerate(names):
        ssns = [f"{number}-{row}" for row in range(ROWS)]
        pq.write_table(pa.table({"ssn": ssns, "city": ["Bergen"] * ROWS}), name)
    old = pq.read_table(names)
    done = run_examples((ROOT / "docs" / "rolling-out.md").read_text(), tmp_path)
    for block, printed in zip(done, PRINTED, strict=True):
        assert re.search(printed, block.stdout.replace(str(tmp_path), "…")), block
    assert pq.read_table(names).equals(old)  # in plaintext again
