"""Reports as evidence: where they come from, what they must not show, and their signatures."""

import base64
import hashlib
import json
import os
import subprocess
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import secure_bloom
from secure_bloom.cli import main
from secure_bloom.cli.origin import without_secrets

VALUE = "078-05-1120"


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, [*map(str, arguments)], input=stdin)


def key_files(folder, name="sign", key=None):
    """Files with a new private key, and with its public one."""
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    key = key or Ed25519PrivateKey.generate()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(key.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def lake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"ssn": [VALUE, *(f"number {number}" for number in range(200))]})
    (tmp_path / "lake").mkdir()
    secure_bloom.write_table(rows, tmp_path / "lake" / "people.parquet", plaintext=True)
    return tmp_path / "lake"


def test_reports_say_where_they_come_from_and_show_no_value(lake, tmp_path):
    (tmp_path / "policy.toml").write_text("# ours\ndefault = \"open\"\n")
    (tmp_path / f"{VALUE}.txt").write_text(f"{VALUE}\n")
    report = f"{VALUE} erased.json"
    begin = datetime.now().astimezone() - timedelta(seconds=1)
    done = run("erase", "lake", "--column", "ssn", "--value", VALUE, "--values", f"{VALUE}.txt",
               "--policy", "policy.toml", "--report", report, "--html", "page.html", "--json")
    assert done.exit_code == 0, done.output
    text = (tmp_path / report).read_text()
    origin = json.loads(text)["origin"]
    assert json.loads(done.stdout)["origin"] == origin
    assert begin <= datetime.fromisoformat(origin["time"]) <= datetime.now().astimezone()
    assert origin["operator"] == subprocess.check_output(["id", "-un"], text=True).strip()
    assert origin["host"] == os.uname().nodename
    assert origin["version"] == f"secure_bloom {secure_bloom.__version__}"
    assert origin["command"] == ("main erase lake --column ssn --value … --values … --report "
                                 "'… erased.json' --html page.html --policy policy.toml --json")
    assert origin["policy_sha256"] == hashlib.sha256(
        (tmp_path / "policy.toml").read_bytes()).hexdigest()
    page = (tmp_path / "page.html").read_text()
    assert all(value in page for value in (origin["time"], origin["host"], "--value …",
                                           origin["policy_sha256"]))
    assert VALUE not in text + page + done.output
    [file] = json.loads(text)["files"]
    assert file["file"].endswith("people.parquet") and file["new_file"] != file["file"]


def test_an_audit_says_where_it_comes_from(lake, tmp_path):
    done = run("audit", "lake", "--guesses", "-", "--report", "audit.json", "--html", "page.html",
               stdin=f"{VALUE}\n")
    assert done.exit_code in (0, 1), done.output
    origin = json.loads((tmp_path / "audit.json").read_text())["origin"]
    assert origin["command"] == ("main audit lake --guesses … --report audit.json "
                                 "--html page.html")
    assert origin["policy_sha256"] is None
    assert origin["time"] in (tmp_path / "page.html").read_text()
    assert VALUE not in (tmp_path / "audit.json").read_text() + done.output


def test_a_value_with_a_quotation_mark_is_not_in_the_command(lake):
    name = "O'Brien"
    secure_bloom.write_table(pa.table({"ssn": [name, *"abc"]}), f"{name}.parquet", plaintext=True)
    done = run("erase", f"{name}.parquet", "--column", "ssn", "--value", name, "--dry-run",
               "--yes", "--json")
    assert done.exit_code == 0, done.output
    command = json.loads(done.stdout)["origin"]["command"]
    assert command == "main erase '….parquet' --column ssn --value … --dry-run --yes --json"


def test_uris_are_shown_without_secrets():
    shown = {text: without_secrets(text) for text in (
        "s3://KEY:SECRET@bucket/people", "abfss://a@b/c?sig=SECRET", "mykms:SECRET",
        "keyring:ring.json?passphrase-file=p", "lake/a b", "s3://bucket/people", "s3://KEY:a/SECRET@bucket/people")}
    assert "SECRET" not in "".join(shown.values())
    assert shown["s3://KEY:SECRET@bucket/people"] == "s3://…@bucket/people"
    assert shown["keyring:ring.json?passphrase-file=p"] == "keyring:ring.json?…"
    assert shown["s3://bucket/people"] == "s3://bucket/people" and shown["lake/a b"] == "lake/a b"


@pytest.fixture
def signed(lake, tmp_path):
    """A signed audit: its report and the public key."""
    private, public = key_files(tmp_path)
    done = run("audit", "lake", "--report", "audit.json", "--html", "page.html", "--sarif",
               "audit.sarif", "--sign", private)
    assert done.exit_code in (0, 1), done.output
    return tmp_path / "audit.json", public


def test_each_report_has_a_signature_that_others_can_verify(signed, tmp_path):
    report, public = signed
    for name in ("audit.json", "page.html", "audit.sarif"):
        done = run("report", "verify", name, "--key", public)
        assert done.exit_code == 0 and "is valid" in done.output
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    load_pem_public_key(public.read_bytes()).verify(
        base64.b64decode((tmp_path / "audit.json.sig").read_text()), report.read_bytes())


def test_what_was_changed_or_exchanged_is_not_valid(signed, tmp_path):
    report, public = signed
    signature = tmp_path / "audit.json.sig"
    before, sealed = report.read_bytes(), signature.read_bytes()
    other, other_public = key_files(tmp_path, "other")

    def refused(text=before, seal=sealed, key=public):
        report.write_bytes(text)
        signature.write_bytes(seal)
        done = run("report", "verify", report, "--key", key)
        assert done.exit_code == 5, done.output
        return text != before or seal != sealed or key != public

    assert refused(before.replace(b'"version": 1', b'"version": 2', 1))
    assert refused(json.dumps(dict(reversed(json.loads(before).items())), indent=2).encode())
    assert refused(before + b" ") and refused(b"") and refused(before.replace(b"\n", b"\r\n"))
    assert refused(key=other_public)
    assert run("audit", "lake", "--report", "second.json", "--sign", other).exit_code in (0, 1)
    assert refused(seal=(tmp_path / "second.json.sig").read_bytes())  # of another report and key
    assert refused(seal=(tmp_path / "page.html.sig").read_bytes())  # by the same key
    for seal in (b"", b"AAAA", b"\xff" * 64, sealed[:-9], sealed + sealed, b"A" * 10**6):
        assert refused(seal=seal)
    signature.unlink()
    report.write_bytes(before)
    assert run("report", "verify", report, "--key", public).exit_code == 3


def test_a_key_that_cannot_sign_is_refused_before_rows_are_erased(lake, tmp_path):
    good, _ = key_files(tmp_path)
    curve, _ = key_files(tmp_path, "curve", ec.generate_private_key(ec.SECP256R1()))
    shared, _ = key_files(tmp_path, "shared")
    shared.chmod(0o644)
    (tmp_path / "none.pem").write_text("SECRET")
    (tmp_path / "taken.sig").mkdir()
    (tmp_path / "none.pem").chmod(0o600)
    file = lake / "people.parquet"
    erase = ["erase", lake, "--column", "ssn", "--value", VALUE]
    for arguments, what in (
            ((*erase, "--report", "r.json", "--sign", curve), "not a private key for Ed25519"),
            ((*erase, "--report", "r.json", "--sign", shared), "run chmod 600"),
            ((*erase, "--report", "r.json", "--sign", "none.pem"), "not a private key"),
            ((*erase, "--sign", good), "needs a report"),
            ((*erase, "--report", "/dev/null", "--sign", good), "not a file"),
            ((*erase, "--report", "taken", "--sign", good), "taken.sig is not a file"),
            ((*erase, "--report", good, "--sign", good), "is the key that signs"),
            ((*erase, "--report", "r", "--html", "./r"), "would be the same file"),
            ((*erase, "--report", "r", "--html", "r.sig", "--sign", good), "the same file"),
            (("audit", file, "--report", file), "would replace")):
        done = run(*arguments)
        assert done.exit_code == 2 and what in done.output, done.output
        assert "SECRET" not in done.output
    assert VALUE in secure_bloom.read_table(lake)["ssn"].to_pylist()
    done = run("report", "verify", good, "--key", good)
    assert done.exit_code == 2 and "not a public key" in done.output
    done = run("report", "verify", "-", "--key", good, stdin="{}")
    assert done.exit_code == 2 and "specify --signature" in done.output


_BROKEN_WORDS = """[...document.querySelectorAll('td, th, dt')].flatMap(cell => {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
    while (texts.nextNode()) {
        const node = texts.currentNode;
        for (const word of node.data.matchAll(/[A-Za-z]{2,10}/g)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            if (range.getClientRects().length > 1) broken.push(word[0]);
        }
    }
    return broken;
})"""


@pytest.mark.slow
def test_words_stay_whole_on_a_telephone(lake, tmp_path, open_page):
    assert run("erase", "lake", "--column", "ssn", "--value", VALUE, "--html",
               "erased.html").exit_code == 0
    assert run("audit", "lake", "--html", "audit.html").exit_code in (0, 1)
    for name in ("erased.html", "audit.html"):
        page = open_page((tmp_path / name).read_text(), 390)
        headers = page.evaluate(_BROKEN_WORDS.replace("td, th, dt", "th, dt"))
        assert headers == [] and page.locator("th").count() > 3, name
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        narrow = page.evaluate("""[...document.querySelectorAll('td')].filter(
            one => one.clientWidth < 80).length""")
        assert narrow == 0, name
