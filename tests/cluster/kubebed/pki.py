"""Certificates, service-account keys, tokens and kubeconfigs: made fresh for every bed, worthless outside it."""

from __future__ import annotations

import json
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .cache import BedError
from .layout import Layout

EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
DAYS = "30"


@dataclass(frozen=True)
class User:
    """A user that the API server knows by a token."""

    file: str
    name: str
    group: str = ""


CONTROL_PLANE_USERS = (
    User("admin", "admin", "system:masters"),
    User("controller-manager", "system:kube-controller-manager"),
    User("scheduler", "system:kube-scheduler"),
    # The chart's account, for who plays many drivers: as powerless as the account itself without the chart's role.
    User("driver", "system:serviceaccount:kube-system:dranet", "system:serviceaccounts"),
)


def node_user(name: str) -> User:
    return User(name, f"system:node:{name}", "system:nodes")


def make_pki(layout: Layout, users: tuple[User, ...]) -> None:
    layout.pki.mkdir(parents=True, mode=0o700)
    _make_ca(layout.pki)
    _make_server_certificate(layout)
    _openssl(layout.pki, "genrsa", "-out", "sa.key", "2048")
    lines = [_make_user(layout, user) for user in users]
    (layout.pki / "tokens.csv").write_text("".join(lines))


def _make_ca(folder: Path) -> None:
    request = ("req", "-x509", *EC_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", DAYS, "-subj", "/CN=bed")
    _openssl(folder, *request, "-addext", "keyUsage=critical,keyCertSign")


def _make_server_certificate(layout: Layout) -> None:
    addresses = (layout.hub_address, layout.api_address)
    names = ["DNS:kubernetes.default.svc", "DNS:kubernetes.default", *(f"IP:{address}" for address in addresses)]
    (layout.pki / "api.ext").write_text("subjectAltName=" + ",".join(names))
    _openssl(layout.pki, "req", *EC_KEY, "-keyout", "api.key", "-out", "api.csr", "-subj", "/CN=kube-apiserver")
    sign = ("x509", "-req", "-in", "api.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS)
    _openssl(layout.pki, *sign, "-out", "api.crt", "-extfile", "api.ext")


def _make_user(layout: Layout, user: User) -> str:
    """Write the user's kubeconfig and return the line that makes the API server know the token."""
    token = secrets.token_hex(16)
    (layout.pki / f"{user.file}.conf").write_text(json.dumps(_kubeconfig(layout, token), indent=1))
    return f'{token},{user.name},{user.file},"{user.group}"\n'


def _kubeconfig(layout: Layout, token: str) -> dict[str, object]:
    """JSON is YAML: every client reads it."""
    cluster = {"server": layout.api_url, "certificate-authority": str(layout.pki / "ca.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": layout.name,
        "clusters": [{"name": layout.name, "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": layout.name, "context": {"cluster": layout.name, "user": "user"}}],
    }


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise BedError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
