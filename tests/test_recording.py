"""The figures of coverage."""

from tests.recording import table


def test_coverage_is_summed_by_room():
    def of(statements, executed, branches, taken):
        return {"summary": {"num_statements": statements, "covered_lines": executed,
                            "num_branches": branches, "covered_branches": taken}}

    rows = table({"files": {"secure_bloom/sbbf/a.py": of(100, 99, 10, 9),
                            "secure_bloom/sbbf/b.py": of(100, 100, 0, 0),
                            "secure_bloom/crypto/c.py": of(200, 200, 30, 30)}}).splitlines()
    assert rows[2:] == ["| `crypto` | 200 | 100.00% | 30 | 100.00% |",
                        "| `sbbf` | 200 | 99.50% | 10 | 90.00% |",
                        "| all | 400 | 99.75% | 40 | 97.50% |"]
