"""A real registry on loopback (Debian's docker-registry): open, with passwords, or with tokens as public ones do."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509 import load_pem_x509_certificate

from tests.cluster.kubebed import parts

USER, PASSWORD = "publisher", "correct horse"
HTPASSWD = f"{USER}:$2b$05$Dd9//9n53TlONZoRBMA7p.w5ErPl/XhCvs8TaU/A1zFVTUxGD1LHK"
"""The password as htpasswd -B writes it."""
SERVICE, ISSUER = "registry", "tests"
START_SECONDS = 60


@contextlib.contextmanager
def registry(folder: Path, auth: dict[str, Any] | None = None) -> Iterator[str]:
    """Its host and port while it runs."""
    settings: dict[str, Any] = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "content")}},
        "http": {"addr": "127.0.0.1:0"},
        **({"auth": auth} if auth else {}),
    }
    (folder / "registry.yml").write_text(json.dumps(settings))
    with (folder / "registry.log").open("w") as log:
        command = [str(parts.registry()), "serve", str(folder / "registry.yml")]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield _address(folder / "registry.log", process)
        finally:
            process.terminate()
            process.wait()


def passwords(folder: Path) -> dict[str, Any]:
    (folder / "htpasswd").write_text(f"{HTPASSWD}\n")
    return {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}


@contextlib.contextmanager
def tokens(folder: Path) -> Iterator[dict[str, Any]]:
    """A server that gives a token to who knows the password, and the settings of a registry that trusts it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    signer = authority.issue_cert("tokens.invalid")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _token_handler(signer))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        realm = f"http://127.0.0.1:{server.server_port}/token"
        bundle = str(folder / "authority.pem")
        yield {"token": {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": bundle}}
    finally:
        server.shutdown()
        server.server_close()


def _token_handler(signer: trustme.LeafCert) -> type[BaseHTTPRequestHandler]:
    expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            allowed = self.headers.get("Authorization") == f"Basic {expected}"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            if allowed:
                self.wfile.write(json.dumps({"token": _token(signer, asked["scope"][0])}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Not into the tests' output."""

    return Handler


def _token(signer: trustme.LeafCert, scope: str) -> str:
    kind, name, actions = scope.split(":")
    now = int(time.time())
    claims = {"iss": ISSUER, "sub": USER, "aud": SERVICE, "jti": hashlib.sha256(scope.encode()).hexdigest()}
    claims |= {"iat": now, "nbf": now - 60, "exp": now + 300}  # type: ignore[dict-item]
    claims["access"] = [{"type": kind, "name": name, "actions": actions.split(",")}]  # type: ignore[assignment]
    certificate = load_pem_x509_certificate(signer.cert_chain_pems[0].bytes())
    chain = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
    head = {"typ": "JWT", "alg": "ES256", "x5c": [chain]}
    signed = b".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
    key = serialization.load_pem_private_key(signer.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
    return (signed + b"." + _base64(r.to_bytes(32, "big") + s.to_bytes(32, "big"))).decode()


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    """As it says itself: a port that was chosen for it may be taken until it listens."""
    end = time.monotonic() + START_SECONDS
    while not (found := re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text())):
        assert process.poll() is None, "the registry ended"
        assert time.monotonic() < end, f"the registry does not listen: {log.read_text()}"
        time.sleep(0.05)
    return found.group(1)
