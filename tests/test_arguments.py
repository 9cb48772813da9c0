"""Names of arguments that do not exist."""

import importlib
import inspect
import pickle
import sys
from types import ModuleType

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.arguments import checks_arguments
from secure_bloom.display import Result
from secure_bloom.errors import ArgumentError
from secure_bloom.public_names import public_names

PACKAGES = ("secure_bloom", "secure_bloom.keys", "secure_bloom.index", "secure_bloom.spark",
            "secure_bloom.spark.native")


def public_functions():
    """Yield what users may call, with its name; of classes, what they add themselves."""
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            public = getattr(package, name)
            members = {name: public}
            if isinstance(public, type) and not issubclass(public, Result):
                members = {f"{name}.{key}": getattr(public, key) for key in vars(public)
                           if key == "__init__" or not key.startswith("_")}
            yield from ((key.removesuffix(".__init__"), member) for key, member in members.items()
                        if inspect.isroutine(member))


def test_everything_public_says_which_argument_may_be_meant():
    taking_any = []
    for name, function in public_functions():
        parameters = inspect.signature(function).parameters
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            taking_any.append(name)
            continue
        message = rf"^(\w+\.)*{name.split('.')[-1]}: there is no argument "
        with pytest.raises(ArgumentError, match=message + "'none_such'"):
            function(none_such=1)
        for parameter in [one for one in parameters if len(one) > 4]:
            with pytest.raises(ArgumentError, match=rf"{message}'\w+' \(did you mean '\w+'\?\)"):
                function(**{f"{parameter}z": 1})
    assert sorted(taking_any) == [
        "Dataset.count_rows", "Dataset.head", "Dataset.join", "Dataset.scanner",
        "Dataset.skipping_scanner", "Dataset.sort_by", "Dataset.take", "Dataset.to_batches",
        "Dataset.to_table", "ParquetWriter", "read", "read_stream", "write",
        "write_dataset", "write_table"]


def test_the_options_of_a_scanner_are_those_of_pyarrow(tmp_path):
    secure_bloom.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    dataset = secure_bloom.dataset(tmp_path)
    message = (r"^Dataset.scanner: there is no argument 'batchsize' \(did you mean "
               r"'batch_size'\?\); arguments: columns, filter")
    for read in (dataset.scanner, dataset.to_table, dataset.to_batches, dataset.count_rows):
        assert read(batch_size=5) is not None
        with pytest.raises(ArgumentError, match=message):
            read(batchsize=5)


def test_public_functions_and_classes_can_be_pickled():
    for name in secure_bloom.__all__:
        public = getattr(secure_bloom, name)
        assert pickle.loads(pickle.dumps(public)) is public


def test_threads_that_ask_at_the_same_time_get_the_same(monkeypatch):
    module = ModuleType("some_module")
    module.function = lambda name: name
    monkeypatch.setitem(sys.modules, "some_module", module)
    get, _ = public_names("some_module", {"function": "some_module"})
    others = []

    def overtaken(what):
        checked = checks_arguments(what)
        if not others:
            others.append("asks now")
            others[0] = get("function")
        return checked

    monkeypatch.setattr("secure_bloom.arguments.checks_arguments", overtaken)
    assert get("function") is others[0] is module.function
