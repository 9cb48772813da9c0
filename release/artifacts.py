"""What comes with the packages: a check of their metadata, an SBOM, checksums, how to sign."""

from __future__ import annotations

import json
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from release.candidate import Candidate, run


def check(candidate: Candidate) -> str:
    """Check the metadata of the packages, and that their pages can be rendered."""
    run(sys.executable, "-m", "twine", "check", "--strict", *candidate.packages,
        folder=candidate.root)
    return "metadata and pages are valid"


def sbom(candidate: Candidate) -> str:
    """List what `pip install secure_bloom` installs, in the versions that were tested."""
    [wheel] = [path for path in candidate.packages if path.name.startswith("secure_bloom-")
               and path.suffix == ".whl"]
    path = candidate.dist / f"secure_bloom-{candidate.version}.cdx.json"
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "venv" / "bin" / "python"
        run(sys.executable, "-m", "venv", "--without-pip", Path(folder) / "venv",
            folder=candidate.root)
        run(sys.executable, "-m", "pip", "--quiet", "--python", python, "install",
            "--constraint", candidate.root / "constraints.txt", wheel, folder=candidate.root)
        for origin in python.parents[1].rglob("direct_url.json"):
            origin.unlink()  # the path of the wheel on this machine
        run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible",
            "--pyproject", candidate.root / "pyproject.toml", "--mc-type", "library",
            "--output-file", path, python, folder=candidate.root,
            SOURCE_DATE_EPOCH=f"{candidate.date}")
    content = json.loads(path.read_text(encoding="utf-8"))
    content["metadata"]["component"]["version"] = candidate.version  # not in pyproject.toml
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return path.name


def checksums(candidate: Candidate) -> str:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    path = candidate.dist / "SHA256SUMS"
    files = [*candidate.packages, *sorted(candidate.dist.glob("*.json"))]
    path.write_text("".join(f"{sha256(file.read_bytes()).hexdigest()}  "
                            f"{file.relative_to(candidate.dist)}\n" for file in files))
    return path.name


def next_commands(candidate: Candidate) -> str:
    """Return the commands that sign and publish, for a person to run."""
    folder = candidate.dist.relative_to(candidate.root)
    return "\n".join([f"git tag --sign v{candidate.version}",
                      f"gpg --armor --detach-sign {folder}/SHA256SUMS",
                      f"twine upload {folder}/packages/*"])
