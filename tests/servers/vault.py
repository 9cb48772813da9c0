"""HashiCorp Vault with the Transit engine and AppRole."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from tests.peers.loopback import Loopback, Request
from tests.peers.transit import TOKEN
from tests.servers.building import BUILD, go_module, in_go
from tests.servers.processes import ServerProcess

_MODULE, _VERSION = "github.com/hashicorp/vault", "v1.21.4"
_SDK, _SDK_VERSION = f"{_MODULE}/sdk", "v0.21.0"
_POLLS = 600  # half a minute
_MAIN = Path(__file__).with_name("vault_server") / "main.go"
#: The sdk that Vault 1.21.4 was released with is not published; this one differs in two functions.
_CHANGES = {
    "framework/backend.go": ("ActivationFunc func(context.Context, *logical.Request, string) error",
                             "ActivationFunc func(context.Context, *logical.Request) error"),
    "helper/keysutil/lock_manager.go": (
        "func (lm *LockManager) RestorePolicy(",
        "func (lm *LockManager) RestorePolicy(ctx context.Context, storage logical.Storage, name, "
        "backup string, force bool) (string, error) {\n"
        "\treturn name, lm.restorePolicy(ctx, storage, name, backup, force)\n}\n\n"
        "func (lm *LockManager) restorePolicy(")}
POLICY = "".join(f'path "transit/{action}/*" {{ capabilities = ["update"] }}\n'
                 for action in ("encrypt", "decrypt"))


class Vault(ServerProcess):
    """A Vault that is initialized and unsealed, and stores its data in a folder.

    ``tls``: its certificate and key. ``url`` is its address.
    """

    version = f"HashiCorp Vault {_VERSION[1:]}"
    fixture = "transit"
    tests = ("tests/keys/test_vault.py", "tests/servers/test_vault.py")

    def __init__(self, tls: tuple[Path, Path] | None = None) -> None:
        self._tls, self.root = tls, ""
        super().__init__()
        self.url = f"{'https' if tls else 'http'}://{self.address}"
        answer = self.call("PUT", "sys/init", secret_shares=1, secret_threshold=1)
        self.root, [self._unseal_key] = answer["root_token"], answer["keys"]
        self.unseal()
        self.call("POST", "sys/mounts/transit", type="transit")
        self.call("PUT", "sys/policies/acl/keys", policy=POLICY)

    @classmethod
    def build(cls) -> list[str]:
        folder = BUILD / f"vault-{_VERSION}"
        if not (program := folder / "vault").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make_module(folder)
            in_go(folder, "build", "-o", str(program), ".")
        return [str(program)]

    def command(self) -> list[str]:
        return [*self.program, self.address, str(self.folder / "data"), *map(str, self._tls or ())]

    def is_ready(self) -> bool:
        try:
            return self.request("GET", "/v1/sys/health", {}, b"")[0] > 0
        except OSError:
            return False

    def unseal(self) -> None:
        """Unseal it, as after each start, and wait until it is active."""
        self.call("PUT", "sys/unseal", key=self._unseal_key)
        for _ in range(_POLLS):
            if self.request("GET", "/v1/sys/health", {}, b"")[0] == 200:
                return
            time.sleep(0.05)
        raise TimeoutError("Vault is not active, although it was unsealed")

    def new_token(self, **options: Any) -> str:
        """Return a new token, which may use all keys unless the options say otherwise."""
        options = {"policies": ["keys"], "no_default_policy": True, **options}
        return self.call("POST", "auth/token/create", **options)["auth"]["client_token"]

    def call(self, method: str, path: str, /, **fields: Any) -> dict[str, Any]:
        """Send a request as root; return the response."""
        status, _, body = self.request(method, f"/v1/{path}", {"X-Vault-Token": self.root},
                                       json.dumps(fields).encode())
        assert status < 300, (path, status, body)
        return json.loads(body) if body else {}

    def request(self, method: str, path: str, headers: dict[str, str], body: bytes) \
            -> tuple[int, dict[str, str], bytes]:
        """Send a request; return status, headers and body of the response."""
        connection = http.client.HTTPSConnection(
            self.address, context=ssl._create_unverified_context()) if self._tls \
            else http.client.HTTPConnection(self.address)
        try:
            connection.request(method, path, body, headers)
            found = connection.getresponse()
            return found.status, {"Content-Type": "application/json"}, found.read()
        finally:
            connection.close()


class RealTransit(Loopback):
    """A proxy before Vault, in place of the stand-in: it records requests, and can be told to fail.

    The token of the tests is exchanged for one of Vault.
    """

    def __init__(self, vault: Vault, *names: str) -> None:
        self._vault, self.tokens, self._token = vault, {TOKEN}, vault.new_token()
        self.minimum = _Minimum(vault)
        vault.call("DELETE", "sys/mounts/transit")
        vault.call("POST", "sys/mounts/transit", type="transit")
        for name in names:
            vault.call("POST", f"transit/keys/{name}", exportable=True,
                       allow_plaintext_backup=True)
        super().__init__(self._pass_on)

    def rotate(self, name: str) -> None:
        self._vault.call("POST", f"transit/keys/{name}/rotate")

    def same_key(self, name: str, other: str) -> None:
        backup = self._vault.call("GET", f"transit/backup/{name}")["data"]["backup"]
        self._vault.call("POST", f"transit/restore/{other}", backup=backup)

    @property
    def deleted(self) -> None:
        pytest.skip("the open edition of Vault does not delete softly")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "knows_associated_data":
            pytest.skip("this Vault knows associated data")
        super().__setattr__(name, value)

    def _pass_on(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in request.headers.items()
                   if name.lower() not in ("host", "connection", "accept-encoding")}
        if headers.get("X-Vault-Token") in self.tokens:
            headers["X-Vault-Token"] = self._token
        return self._vault.request(request.method, request.path, headers, request.body)


class _Minimum(dict[str, int]):
    """Sets ``min_decryption_version`` of keys, by their names."""

    def __init__(self, vault: Vault) -> None:
        super().__init__()
        self._vault = vault

    def __setitem__(self, name: str, version: int) -> None:
        self._vault.call("POST", f"transit/keys/{name}/config", min_decryption_version=version)


def _make_module(folder: Path) -> None:
    """Write a module with our main function, Vault's requirements, and a changed sdk."""
    vault, sdk = go_module(_MODULE, _VERSION), go_module(_SDK, _SDK_VERSION)
    folder.mkdir(parents=True)
    shutil.copy(_MAIN, folder)
    # Vault's go.mod replaces modules by folders that are not part of the module.
    text = re.sub(rf"^replace {_MODULE}/.*\n", "", Path(vault["GoMod"]).read_text(), flags=re.M)
    text = re.sub(r"^module .*", "module vaultserver", text)
    text = text.replace(f"\t{_SDK} ", f"\t{_MODULE} {_VERSION}\n\t{_SDK} ", 1)
    (folder / "go.mod").write_text(f"{text}\nreplace {_SDK} => ./sdk\n")
    shutil.copy(Path(vault["Dir"]) / "go.sum", folder)
    (folder / "go.sum").chmod(0o644)
    shutil.copytree(sdk["Dir"], folder / "sdk", copy_function=shutil.copyfile)
    for name, (old, new) in _CHANGES.items():
        path = folder / "sdk" / name
        path.parent.chmod(0o755)
        path.write_text(path.read_text().replace(old, new))
