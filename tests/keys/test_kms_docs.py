"""What docs/kms.md shows can be used as it is."""

import inspect
import json
import re
from pathlib import Path

import pytest

from secure_bloom import keys

PAGE = (Path(__file__).parents[2] / "docs" / "kms.md").read_text()
SIGNATURES = re.findall(r"```python\n([A-Z]\w+)(\([^`]*?\))\n```", PAGE)
URIS = [uri for uri in re.findall(r"^`([a-z0-9]+:[^`]*)`", PAGE, re.MULTILINE) if "=" in uri
        or "/" in uri]


@pytest.mark.parametrize(("name", "signature"), SIGNATURES)
def test_signatures(name, signature):
    real = inspect.signature(getattr(keys, name))
    shown = [f"{one.name}={one.default!r}".replace("'", '"')
             if one.default is not one.empty else one.name for one in real.parameters.values()]
    first = next(i for i, one in enumerate(real.parameters.values())
                 if one.kind is one.KEYWORD_ONLY)
    assert " ".join(signature.split()) == f"({', '.join([*shown[:first], '*', *shown[first:]])})"


def test_the_clients_are_all_there():
    clients = {name for name in keys.__all__ if name.endswith("Kms")} - {"CachedKms", "InMemoryKms"}
    assert {name for name, _ in SIGNATURES} == clients
    assert clients <= set(re.findall(r"^\| .* \| `(\w+)` \| `pip install", PAGE, re.MULTILINE))


@pytest.mark.parametrize("uri", URIS)
def test_uris(uri):
    assert type(keys.open_kms(uri)).__name__ in PAGE


def test_every_scheme_has_an_example():
    assert {uri.partition(":")[0] for uri in URIS} == {"awskms", "azurekeyvault", "gcpkms",
                                                      "pkcs11", "vault"}


@pytest.mark.parametrize("block", re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
def test_policies_are_json(block):
    assert json.loads(block)
