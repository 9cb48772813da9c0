"""A release is refused while something is missing, and what is built depends on the commit only."""

import gzip
import io
import json
import re
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

import secure_bloom
from release import artifacts, readiness
from release.__main__ import STEPS, main
from release.building import export, repacked
from release.candidate import Candidate, NotReady

ROOT = Path(__file__).parents[2]
ENTRY = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2030-01-31\n\n### Added\n\n- Something.\n"


@pytest.fixture
def candidate(tmp_path: Path) -> Candidate:
    """Version 1.2.3 of a small project, ready to be released."""
    (tmp_path / "secure_bloom").mkdir()
    (tmp_path / "secure_bloom" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(ENTRY)
    (tmp_path / ".gitignore").write_text("dist/\n")
    (tmp_path / "Makefile").write_text("test test-build:\n\t@true\ndocs:\n\t@false\n")
    candidate = Candidate(tmp_path, tmp_path / "dist")
    candidate.git("init", "--quiet")
    commit(candidate)
    return candidate


def commit(candidate: Candidate) -> None:
    candidate.git("add", "--all")
    candidate.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "x")


def test_the_version_is_that_of_the_package():
    assert Candidate(ROOT, ROOT / "dist").version == secure_bloom.__version__


def test_a_candidate_that_is_ready(candidate):
    assert readiness.changelog(candidate) == "version 1.2.3 of 2030-01-31"
    assert re.fullmatch(r"commit [0-9a-f]+, not tagged yet", readiness.tree(candidate))
    candidate.git("tag", "v1.2.3")
    candidate.git("tag", "verified")
    assert readiness.tree(candidate).endswith("tag v1.2.3")


@pytest.mark.parametrize(("text", "message"), [
    (ENTRY.replace("1.2.3", "1.2.30"), "no entry"),
    (ENTRY.replace("1.2.3", "1x2x3"), "no entry"),
    (ENTRY.replace(" - 2030-01-31", ""), "no entry"),
    (ENTRY.replace("- Something.", ""), "empty"),
    (ENTRY.replace("- Something.", "## [1.2.2] - 2029-01-31\n\n- Something."), "empty"),
    ("# Changelog\n\n## [Unreleased]\n\n- Something.\n", "no entry")])
def test_a_changelog_without_the_version(candidate, text, message):
    (candidate.root / "CHANGELOG.md").write_text(text)
    with pytest.raises(NotReady, match=message):
        readiness.changelog(candidate)


def test_a_tree_that_is_not_committed(candidate):
    (candidate.root / "new.py").write_text("")
    with pytest.raises(NotReady, match=r"not committed:\n\?\? new\.py"):
        readiness.tree(candidate)


def test_a_tag_of_another_version(candidate):
    candidate.git("tag", "v1.2.4")
    with pytest.raises(NotReady, match=r"tag v1\.2\.4, but is version 1\.2\.3"):
        readiness.tree(candidate)


def test_all_steps_run_and_what_fails_is_named(candidate, capfd):
    steps = ("changelog", "tree", "tests", "docs", "check")
    skipped = STEPS.keys() - set(steps)
    assert main(["--skip", *skipped], candidate.root) == 1
    shown = capfd.readouterr().out.split("\nsecure_bloom 1.2.3\n")[1]
    assert [line.split()[0] for line in shown.splitlines()[:len(STEPS)]] == list(STEPS)
    assert "tests      passed" in shown
    assert "docs       FAILED: `make docs` ended with exit code 2" in shown
    assert "check      FAILED: there are no packages" in shown
    assert shown.splitlines()[-1].startswith("not ready to be released: docs, check, ")


def test_what_was_skipped_is_not_ready(candidate, capfd):
    assert main(["--skip", *(STEPS.keys() - {"tree"})], candidate.root) == 0
    shown = capfd.readouterr().out
    assert "ready; " not in shown and "not ready to be released: " in shown
    with pytest.raises(SystemExit):
        main(["--skip", "typo"], candidate.root)


def test_only_committed_files_are_built(candidate, tmp_path_factory):
    (candidate.root / "CHANGELOG.md").write_text("not committed")
    (candidate.root / "new.py").write_text("")
    folder = tmp_path_factory.mktemp("export")
    export(candidate, folder)
    assert {path.name for path in folder.iterdir()} == {
        "secure_bloom", "CHANGELOG.md", ".gitignore", "Makefile"}
    assert (folder / "CHANGELOG.md").read_text() == ENTRY


def source_distribution(names: list[str], user: str, time: int, mode: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.uname, member.mtime, member.mode, member.size = user, time, mode, len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return file.getvalue()


def test_a_source_distribution_does_not_tell_who_built_it_and_when():
    first = repacked(source_distribution(["a/b", "a/a.sh"], "ann", 1, 0o775), 1_000)
    second = repacked(source_distribution(["a/a.sh", "a/b"], "bob", 2, 0o755), 1_000)
    assert first == second and b"bob" not in gzip.decompress(first)
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert {member.name: (archive.extractfile(member).read(), member.mode, member.mtime)
                for member in archive} == {"a/b": (b"a/b", 0o755, 1_000),
                                           "a/a.sh": (b"a/a.sh", 0o755, 1_000)}
    assert first != repacked(source_distribution(["a/a.sh", "a/c"], "bob", 2, 0o755), 1_000)


def test_checksums_can_be_checked(candidate):
    packages = candidate.dist / "packages"
    packages.mkdir(parents=True)
    for name in ("a.whl", "a.tar.gz"):
        (packages / name).write_text(name)
    (candidate.dist / "a.cdx.json").write_text(json.dumps({}))
    assert artifacts.checksums(candidate) == "SHA256SUMS"
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=candidate.dist,
                          capture_output=True, text=True)
    assert done.stdout == "packages/a.tar.gz: OK\npackages/a.whl: OK\na.cdx.json: OK\n"
    assert sha256(b"a.whl").hexdigest() in (candidate.dist / "SHA256SUMS").read_text()


def test_the_commands_that_are_left_sign_and_publish(candidate):
    assert artifacts.next_commands(candidate).splitlines() == [
        "git tag --sign v1.2.3", "gpg --armor --detach-sign dist/SHA256SUMS",
        "twine upload dist/packages/*"]
