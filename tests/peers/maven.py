"""Jars from Maven Central, for peers that are not among Spark's jars."""

import subprocess
from pathlib import Path

from tests.peers.process import PeerUnavailable, cached_build, find_tool

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>secure-bloom</groupId><artifactId>peers</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId>" \
              "<version>{}</version></dependency>"
_CLASSIFIED = _DEPENDENCY.replace("</dependency>", """<classifier>{}</classifier>
  <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
  </dependency>""")


def classpath(*coordinates: str) -> list[Path]:
    """Return the jars of some artifacts and of what they need, fetched once.

    Parameters
    ----------
    coordinates
        ``group:artifact:version``; with ``:classifier``, that jar alone.

    Raises
    ------
    PeerUnavailable
        If Maven is not installed, or does not get them.
    """
    def fetch(folder: Path) -> None:
        pom = folder / "pom.xml"
        pom.write_text(_POM.format("".join(
            (_CLASSIFIED if one.count(":") == 3 else _DEPENDENCY).format(*one.split(":"))
            for one in coordinates)))
        done = subprocess.run(
            [find_tool("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
             "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
            capture_output=True, text=True)
        if done.returncode:
            raise PeerUnavailable(f"Maven did not get {', '.join(coordinates)}: "
                                  f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return sorted(cached_build([], f"maven {coordinates}", fetch).glob("*.jar"))
