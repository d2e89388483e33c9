"""Finding the cluster: the service account of a pod, or a kubeconfig.

PyYAML is loaded by name and only when a kubeconfig is not JSON, so the daemon in a pod never carries it.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dranet.kube.auth import Anonymous, Basic, Credential, ExecCredential, StaticToken, TokenFile
from dranet.kube.errors import ConfigError
from dranet.kube.http import NetTransport

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Where the API server is, how to trust it, and who we are."""

    host: str
    port: int
    prefix: str
    context: ssl.SSLContext | None
    credential: Credential
    server_name: str | None = None
    namespace: str = "default"

    def transport(self) -> NetTransport:
        """A connection pool for it."""
        return NetTransport(self.host, self.port, self.context, server_name=self.server_name)


def load_config(kubeconfig: str | os.PathLike[str] | None = None, *, context: str | None = None) -> ClusterConfig:
    """In a pod the service account; else the named kubeconfig, ``$KUBECONFIG`` or ``~/.kube/config``."""
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig), context=context)
    if context is None and (SERVICE_ACCOUNT / "token").exists() and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    for path in [*named, Path.home() / ".kube" / "config"]:
        if path.exists():
            return from_kubeconfig(path, context=context)
    raise ConfigError("no cluster: not in a pod, and no kubeconfig in --kubeconfig, $KUBECONFIG or ~/.kube/config")


def in_cluster(environ: Mapping[str, str] = os.environ, root: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """The API server as a pod's service account sees it."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: not in a pod? give --kubeconfig")
    try:
        tls = ssl.create_default_context(cafile=str(root / "ca.crt"))
    except OSError as error:
        raise ConfigError(f"cannot read the cluster's CA from {root / 'ca.crt'}: {error.strerror}") from error
    namespace = root / "namespace"
    return ClusterConfig(
        host=host,
        port=int(port),
        prefix="",
        context=tls,
        credential=TokenFile(root / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def from_kubeconfig(path: Path, *, context: str | None = None) -> ClusterConfig:
    """One context of a kubeconfig file."""
    raw = _parse(path)
    name = context or raw.get("current-context")
    if not name:
        raise ConfigError(f"{path} has no current-context; choose one with --context")
    chosen = _entry(path, raw, "contexts", "context", name)
    cluster = _entry(path, raw, "clusters", "cluster", chosen.get("cluster"))
    user = _entry(path, raw, "users", "user", chosen["user"]) if chosen.get("user") else {}
    return _cluster_config(path, cluster, user, chosen.get("namespace") or "default")


def _cluster_config(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str) -> ClusterConfig:
    url = urlsplit(cluster.get("server") or "")
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ConfigError(f"{path}: server {cluster.get('server')!r} is not an http or https address")
    return ClusterConfig(
        host=url.hostname,
        port=url.port or (443 if url.scheme == "https" else 80),
        prefix=url.path.rstrip("/"),
        context=_tls(path, cluster, user) if url.scheme == "https" else None,
        credential=_credential(path, user, cluster),
        server_name=cluster.get("tls-server-name"),
        namespace=namespace,
    )


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    try:
        raw = msgspec.json.decode(text)
    except msgspec.DecodeError:
        yaml = importlib.import_module("yaml")
        try:
            raw = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"the kubeconfig {path} is neither JSON nor YAML: {error}") from error
    if not isinstance(raw, Mapping):
        raise ConfigError(f"the kubeconfig {path} holds no mapping")
    return raw


def _entry(path: Path, raw: Mapping[str, Any], section: str, key: str, name: str | None) -> Mapping[str, Any]:
    for item in raw.get(section) or ():
        if item.get("name") == name:
            return item.get(key) or {}
    known = ", ".join(sorted(str(item.get("name")) for item in raw.get(section) or ())) or "none"
    raise ConfigError(f"{path} has no {key} {name!r} (it has: {known})")


def _credential(path: Path, user: Mapping[str, Any], cluster: Mapping[str, Any]) -> Credential:
    if user.get("tokenFile"):
        return TokenFile(path.parent / user["tokenFile"])
    if user.get("token"):
        return StaticToken(user["token"])
    if user.get("username"):
        return Basic(user["username"], user.get("password") or "")
    return ExecCredential(user["exec"], cluster) if user.get("exec") else Anonymous()


def _tls(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _material(path, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _material(path, user, "client-certificate"), _material(path, user, "client-key")
    if certificate and key:
        _load_pair(context, certificate, key)
    return context


def _material(path: Path, section: Mapping[str, Any], name: str) -> bytes | None:
    """PEM text given inline (base64) or as a file beside the kubeconfig."""
    if section.get(f"{name}-data"):
        try:
            return base64.b64decode(section[f"{name}-data"], validate=True)
        except binascii.Error as error:
            raise ConfigError(f"{path}: {name}-data is not base64: {error}") from error
    if section.get(name):
        try:
            return Path(path.parent, section[name]).read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: cannot read {name} {section[name]}: {error.strerror}") from error
    return None


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The standard library takes client certificates from files only: one that nobody else can read, briefly."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)
