"""Java classes for the JVM of Spark's driver, compiled there by Spark's own compiler.

Spark ships Janino to compile its queries, so neither a JDK nor a prebuilt jar is needed.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext


def jvm_of(context: SparkContext) -> Any:
    """Return the JVM of a classic session, with Java packages as attributes."""
    return context._jvm


def build_jar(context: SparkContext, name: str, sources: Iterable[tuple[str, str]]) -> str:
    """Compile Java sources, by Python package and name, into a jar; return its path.

    Each source may use those before it. Spark removes the jar when the application ends.
    """
    jvm = jvm_of(context)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    path = os.path.join(context._temp_dir, name)
    with zipfile.ZipFile(path, "w") as jar:
        for package, source in sources:
            text = resources.files(package).joinpath(source).read_text()
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(source, jvm.java.io.StringReader(text))
            for class_name, code in compiler.getBytecodes().items():
                jar.writestr(f"{class_name.replace('.', '/')}.class", code)
            loader = compiler.getClassLoader()
    return path
