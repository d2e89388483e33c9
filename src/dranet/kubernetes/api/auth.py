"""Credentials for the API server: the headers of each request.

Service account tokens are rotated on disk every hour or so, so the file is read again for every request. It is small
and in the page cache, and a stale token is hard to debug.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from dranet.kubernetes.api.errors import ConfigError
from dranet.kubernetes.api.resources import Now, utc_now
from dranet.kubernetes.api.tls import ClientTls, KeyPair


class Credential(Protocol):
    """The headers that authenticate a request."""

    async def headers(self) -> Mapping[str, str]:
        """Headers of the next request."""

    def invalidate(self) -> bool:
        """Drop cached headers after a 401. True if the next `headers` may return others."""


class Anonymous(msgspec.Struct, frozen=True):
    """No header: client certificates, or no authentication."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    def invalidate(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A bearer token that never changes."""

    token: str = field(repr=False)

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def invalidate(self) -> bool:
        return False


class TokenFile(msgspec.Struct, frozen=True):
    """A bearer token in a file that is rotated, such as that of a service account."""

    path: Path

    async def headers(self) -> Mapping[str, str]:
        try:
            token = self.path.read_text().strip()
        except OSError as error:
            raise ConfigError(f"cannot read the API token from {self.path}: {error.strerror}") from error
        return {"Authorization": f"Bearer {token}"}

    def invalidate(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Basic:
    """User name and password."""

    username: str
    password: str = field(repr=False)

    async def headers(self) -> Mapping[str, str]:
        raw = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return {"Authorization": f"Basic {raw}"}

    def invalidate(self) -> bool:
        return False


class ExecCredential:
    """An exec plugin that returns a token, a client certificate or both, as in cloud providers' kubeconfigs.

    It runs again when its result expires or the server rejects it.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        tls: ClientTls | None = None,
        cluster: Mapping[str, Any] | None = None,
        *,
        now: Now = utc_now,
    ) -> None:
        if not spec.get("command"):
            raise ConfigError("the kubeconfig's exec section has no command")
        self._spec = spec
        self._tls = tls
        self._cluster = cluster
        self._now = now
        self._headers: dict[str, str] | None = None
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        async with self._lock:
            if self._headers is None or (self._expires and self._now() >= self._expires):
                self._headers = self._read_status(await self._run())
            return self._headers

    def invalidate(self) -> bool:
        self._headers = None
        return True

    def _read_status(self, status: Mapping[str, Any]) -> dict[str, str]:
        token, pair = status.get("token"), self._pair(status)
        if not token and pair is None:
            raise ConfigError(f"{self._spec['command']} returned neither a token nor a client certificate with its key")
        if pair is not None and self._tls is not None:
            self._tls.use_certificate(pair)
        self._expires = self._parse_expiry(status.get("expirationTimestamp"))
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _pair(self, status: Mapping[str, Any]) -> KeyPair | None:
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if bool(certificate) != bool(key):
            raise ConfigError(f"{self._spec['command']} returned a client certificate or a key without the other")
        return KeyPair(str(certificate).encode(), str(key).encode()) if certificate else None

    def _parse_expiry(self, text: str | None) -> datetime | None:
        try:
            moment = datetime.fromisoformat(text) if text else None
        except ValueError as error:
            raise ConfigError(
                f"{self._spec['command']} returned the invalid expirationTimestamp {text!r}: {error}"
            ) from error
        return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None

    async def _run(self) -> Mapping[str, Any]:
        command = [self._spec["command"], *(self._spec.get("args") or ())]
        env = dict(os.environ) | {item["name"]: item["value"] for item in self._spec.get("env") or ()}
        env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(self._info()).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                *command, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
        except OSError as error:
            hint = self._spec.get("installHint") or "install it, or choose another kubeconfig user"
            raise ConfigError(f"cannot run {command[0]} named in the kubeconfig: {error.strerror}; {hint}") from error
        out, _ = await process.communicate()
        if process.returncode:
            raise ConfigError(f"{' '.join(command)} failed with exit code {process.returncode}")
        try:
            return msgspec.json.decode(out, type=_ExecResponse).status or {}
        except msgspec.DecodeError as error:
            raise ConfigError(f"{command[0]} did not print an ExecCredential: {error}") from error

    def _info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._spec.get("provideClusterInfo") and self._cluster:
            spec["cluster"] = dict(self._cluster)
        version = self._spec.get("apiVersion") or "client.authentication.k8s.io/v1"
        return {"apiVersion": version, "kind": "ExecCredential", "spec": spec}


class _ExecResponse(msgspec.Struct):
    """The output of an exec plugin."""

    status: dict[str, Any] | None = None
