"""The reference lists every public name, and each has a docstring."""

import importlib
import inspect
import re

import pytest

from secure_bloom import ParquetFile
from tests.docs.pages import PUBLIC, ROOT, documented

API = ROOT / "docs" / "api"


def public_names(module):
    """The public names of a module: __all__, or its own classes."""
    return getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if inspect.isclass(value)
        and value.__module__ == module.__name__ and name[0].isupper()]


@pytest.fixture(params=PUBLIC)
def module(request):
    return importlib.import_module(request.param)


@pytest.fixture(scope="module")
def listed():
    """The objects that the reference lists, and the modules that it takes as a whole."""
    for package in ("pyspark", "lance"):
        pytest.importorskip(package)
    names = set().union(*(documented(path.read_text()) for path in API.glob("*.md")))
    return [resolve(name) for name in names]


def resolve(name):
    """The object of this full name."""
    module, _, last = name.rpartition(".")
    return importlib.import_module(name) if name in PUBLIC \
        else getattr(importlib.import_module(module), last)


def test_every_public_name_is_in_the_reference(module, listed):
    if module in listed:  # the page takes the whole module
        return
    assert [name for name in public_names(module)
            if not any(getattr(module, name) is one for one in listed)] == []


def test_every_public_name_has_a_docstring(module):
    missing = []
    for name in public_names(module):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            missing += [name] * (not (value.__doc__ or "").strip())
        if inspect.isclass(value):
            missing += [f"{name}.{member}" for member, one in vars(value).items()
                        if not member.startswith("_") and not inspect.getdoc(one)
                        and (inspect.isroutine(one) or isinstance(one, property))]
    assert missing == []


def test_a_file_has_only_the_members_that_the_reference_lists():
    """What the package itself does with a file is in :mod:`secure_bloom.reading`."""
    [members] = re.findall(r"^\.\. autoclass:: ParquetFile\n +:members: (.+)$",
                           (API / "secure-bloom.md").read_text(), re.MULTILINE)
    assert sorted(members.split(", ")) == [name for name in dir(ParquetFile) if name[0] != "_"]


def test_the_reference_has_a_page_for_each_module():
    text = (API / "index.md").read_text()
    for page in PUBLIC.values():
        assert f"]({page}.md)" in text


def test_every_environment_variable_is_explained():
    text = (ROOT / "docs" / "options.md").read_text()
    sources = [path.read_text() for folder in ("secure_bloom", "keys")
               for path in (ROOT / folder).rglob("*.py")]
    names = {name for source in sources for name in re.findall(r"\bSECURE_BLOOM_[A-Z]+\b", source)}
    assert names
    assert {name for name in names if f"| `{name}` |" not in text} == set()


def test_every_option_of_filters_is_explained():
    from secure_bloom.sbbf import options
    text = (ROOT / "docs" / "options.md").read_text()
    assert re.findall(r"^\| `(fpp|ndv|max_bytes)` \|", text, re.MULTILINE) == list(options._NAMES)


def test_every_public_function_shows_an_example(module):
    functions = [name for name in public_names(module)
                 if inspect.isroutine(getattr(module, name))]
    assert [name for name in functions
            if "\nExamples\n" not in inspect.getdoc(getattr(module, name))] == []
