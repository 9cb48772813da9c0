"""Which tests one process runs, where several processes share the tests."""

import pytest

_SPARK = "tests/spark/"
_SPARK_PROCESSES = 2  # more would start more sessions, which are slow at first


def begins_first(module: str) -> bool:
    """Whether a module is of those that must not be left to the end, for few processes run them."""
    return module.startswith(_SPARK)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With ``--dist loadgroup``, a process runs a whole module, and a half of those of Spark.

    So fixtures of modules are made once. Marks of groups do not do it: pytest-xdist 3.8 ignores
    them with pytest 9.2.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling
    modules: dict[str, int] = {}

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            module = nodeid.partition("::")[0]
            if module.startswith(_SPARK):
                return f"spark {modules.setdefault(module, len(modules)) % _SPARK_PROCESSES}"
            return module

    return Sharing(config, log)
