"""How to reach a cluster: the service account of a pod, or a kubeconfig."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dranet.kubernetes.api.auth import Anonymous, Basic, Credential, ExecCredential, StaticToken, TokenFile
from dranet.kubernetes.api.errors import ConfigError
from dranet.kubernetes.api.http import NetTransport
from dranet.kubernetes.api.kubeconfig import Entry, Kubeconfig, SelectedContext
from dranet.kubernetes.api.tls import ClientTls, KeyPair, Trust

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_EXTENSION = "client.authentication.k8s.io/exec"

_UNSUPPORTED = {
    "proxy-url": "connections through a proxy are not supported; open a tunnel and name its end as the server",
    "as": "impersonation is not supported; choose a user that has the rights itself",
    "auth-provider": "auth providers were removed from Kubernetes; use an exec plugin",
}


class ClusterConfig(msgspec.Struct, frozen=True):
    """Address, TLS settings and credential of an API server."""

    host: str
    port: int
    prefix: str
    context: Callable[[], ssl.SSLContext] | None
    credential: Credential
    server_name: str | None = None
    namespace: str = "default"

    def transport(self) -> NetTransport:
        """A connection pool for it."""
        return NetTransport(self.host, self.port, self.context, server_name=self.server_name)


def load_config(
    kubeconfig: str | os.PathLike[str] | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ClusterConfig:
    """The named kubeconfig; else those of ``$KUBECONFIG``; else the pod's service account; else ``~/.kube/config``."""
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig), context=context)
    named = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if there := [path for path in named if path.exists()]:
        return from_kubeconfig(*there, context=context)
    if context is None and (SERVICE_ACCOUNT / "token").exists() and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    if named:
        raise ConfigError(f"no cluster: $KUBECONFIG names {_listed(named)}, which does not exist")
    home = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if home.exists():
        return from_kubeconfig(home, context=context)
    raise ConfigError("no cluster: not in a pod, and no kubeconfig in --kubeconfig, $KUBECONFIG or ~/.kube/config")


def in_cluster(environ: Mapping[str, str] = os.environ, root: Path = SERVICE_ACCOUNT) -> ClusterConfig:
    """The API server of the pod's service account."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set; outside a pod use --kubeconfig")
    authority, namespace = root / "ca.crt", root / "namespace"
    tls = ClientTls(lambda: Trust(_read_authority(authority)), files=[authority])
    return ClusterConfig(
        host=host,
        port=int(port),
        prefix="",
        context=tls.context,
        credential=TokenFile(root / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _read_authority(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the cluster's CA from {path}: {error.strerror}") from error


def from_kubeconfig(*paths: Path, context: str | None = None) -> ClusterConfig:
    """One context of a kubeconfig, or of several merged ones."""
    chosen = Kubeconfig(paths).choose(context)
    cluster, user = chosen.cluster, chosen.user
    _refuse_unsupported(cluster, user)
    host, port, prefix, encrypted = _server(cluster)
    tls = _tls(chosen) if encrypted else None
    return ClusterConfig(
        host=host,
        port=port,
        prefix=prefix,
        context=tls.context if tls else None,
        credential=_credential(user, cluster, tls),
        server_name=cluster.get("tls-server-name"),
        namespace=chosen.namespace,
    )


def _server(cluster: Entry) -> tuple[str, int, str, bool]:
    """Host, port, path and whether it is https."""
    server = cluster.get("server")
    try:
        url = urlsplit(str(server or ""))
        port = url.port
    except ValueError as error:
        raise ConfigError(f"{cluster.origin}: server {server!r}: {error}") from error
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ConfigError(f"{cluster.origin}: server {server!r} is not an http or https address")
    encrypted = url.scheme == "https"
    return url.hostname, port or (443 if encrypted else 80), url.path.rstrip("/"), encrypted


def _refuse_unsupported(*entries: Entry) -> None:
    """Fail instead of connecting as another user, or without a proxy that is required."""
    for entry in entries:
        for name, why in _UNSUPPORTED.items():
            if entry.get(name):
                raise ConfigError(f"{entry.origin}: {name} is set: {why}")


def _tls(chosen: SelectedContext) -> ClientTls:
    files = [chosen.cluster.file("certificate-authority")]
    files += [chosen.user.file(name) for name in ("client-certificate", "client-key")]
    return ClientTls(
        lambda: Trust(chosen.cluster.material("certificate-authority"), _pair(chosen.user)),
        files=[file for file in files if file is not None],
        verify=not chosen.cluster.get("insecure-skip-tls-verify"),
    )


def _pair(user: Entry) -> KeyPair | None:
    certificate, key = (user.material(name) for name in ("client-certificate", "client-key"))
    if certificate and key:
        return KeyPair(certificate, key)
    if certificate or key:
        missing = "client-key" if certificate else "client-certificate"
        raise ConfigError(f"{user.origin}: the user has no {missing}; both are needed, or neither")
    return None


def _credential(user: Entry, cluster: Entry, tls: ClientTls | None) -> Credential:
    if user.get("tokenFile"):
        return TokenFile(user.path("tokenFile"))
    if user.get("token"):
        return StaticToken(user.get("token"))
    if user.get("username"):
        return Basic(user.get("username"), user.get("password") or "")
    if not user.get("exec"):
        return Anonymous()
    return ExecCredential(_plugin(user), tls, _cluster_info(cluster))


def _plugin(user: Entry) -> dict[str, Any]:
    """The exec section; a command with a slash in it is relative to the kubeconfig, one without is on the PATH."""
    spec = dict(user.get("exec"))
    command = str(spec.get("command") or "")
    if "/" in command:
        spec["command"] = str(user.origin.parent / command)
    return spec


def _cluster_info(cluster: Entry) -> dict[str, Any]:
    """The cluster information for an exec plugin with provideClusterInfo."""
    info = {name: cluster.get(name) for name in ("server", "tls-server-name", "insecure-skip-tls-verify")}
    if authority := cluster.material("certificate-authority"):
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == EXEC_EXTENSION:
            info["config"] = extension.get("extension")
    return {name: value for name, value in info.items() if value is not None}


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))
