"""Who we are to the API server.

A credential gives the headers of each request. Service account tokens are replaced on disk every hour or so, so the
file is read for every request: it lives in memory, and a stale token is a mystery nobody should debug.
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

from dranet.kube.errors import ConfigError


class Credential(Protocol):
    """Headers that identify us."""

    async def headers(self) -> Mapping[str, str]:
        """For the next request."""

    def forget(self) -> bool:
        """The server said 401: drop what is cached. True if asking again may give something new."""


@dataclass(frozen=True, slots=True)
class Anonymous:
    """No header at all: client certificates, or nothing."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    def forget(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A bearer token that never changes."""

    token: str = field(repr=False)

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def forget(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A bearer token in a file that somebody else keeps fresh."""

    path: Path

    async def headers(self) -> Mapping[str, str]:
        try:
            token = self.path.read_text().strip()
        except OSError as error:
            raise ConfigError(f"cannot read the API token from {self.path}: {error.strerror}") from error
        return {"Authorization": f"Bearer {token}"}

    def forget(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Basic:
    """User name and password."""

    username: str
    password: str = field(repr=False)

    async def headers(self) -> Mapping[str, str]:
        raw = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return {"Authorization": f"Basic {raw}"}

    def forget(self) -> bool:
        return False


class ExecCredential:
    """A token from a program, the way cloud providers' kubeconfigs work; asked again when it expires or fails."""

    def __init__(self, spec: Mapping[str, Any], cluster: Mapping[str, Any] | None = None) -> None:
        if not spec.get("command"):
            raise ConfigError("the kubeconfig's exec section names no command")
        self._spec = spec
        self._cluster = cluster
        self._token: str | None = None
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        async with self._lock:
            if self._token is None or (self._expires and datetime.now(UTC) >= self._expires):
                self._read(await self._run())
        return {"Authorization": f"Bearer {self._token}"}

    def forget(self) -> bool:
        self._token = None
        return True

    def _read(self, status: Mapping[str, Any]) -> None:
        token = status.get("token")
        if not token:
            raise ConfigError(f"{self._spec['command']} gave no token (client certificates from it are not supported)")
        self._token = token
        expires = status.get("expirationTimestamp")
        self._expires = datetime.fromisoformat(expires) if expires else None

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
            return msgspec.json.decode(out, type=dict[str, Any]).get("status") or {}
        except msgspec.DecodeError as error:
            raise ConfigError(f"{command[0]} printed no ExecCredential: {error}") from error

    def _info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._spec.get("provideClusterInfo") and self._cluster:
            spec["cluster"] = dict(self._cluster)
        version = self._spec.get("apiVersion") or "client.authentication.k8s.io/v1"
        return {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
