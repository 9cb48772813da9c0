"""The examples of docs/policy.md run as they stand there, in their order."""

import re
from pathlib import Path

import pytest

from secure_bloom.policy import Policy, toml
from tests.doc_examples import run_examples

TEXT = (Path(__file__).parents[1] / "docs" / "policy.md").read_text()


@pytest.mark.slow
def test_examples(tmp_path):
    finished = run_examples(TEXT, tmp_path)
    outputs = [done.stdout for done in finished]
    shown = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert shown == outputs[1:4]
    assert "name True crm" in outputs[4] and "note False None" in outputs[4]


def test_the_policies_are_valid():
    for text in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL):
        assert Policy.from_toml(text).for_path("/lake/customers/a").is_sensitive("name")


def test_every_setting_is_explained():
    for name in (*toml.GENERAL, "key", "plaintext", "bloom_filter"):
        assert re.search(rf"^\| `\[*{name}\]*` \|", TEXT, re.MULTILINE), name
