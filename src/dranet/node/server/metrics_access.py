"""Optional TLS and authorization for the driver's HTTP port.

TLS covers the whole port. A Secret that is mounted changes in place, so the files are read again when they have
changed, at the next handshake. Authorization covers /metrics only: the kubelet's probes send no token. As in
Kubernetes' own components, a client sends a bearer token whose user may `get` the non-resource URL `/metrics`.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from dranet.core.errors import InvalidInput
from dranet.core.logs import get_logger
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import KubeError
from dranet.kubernetes.api.reviews import is_allowed, user_of

log = get_logger(__name__)

ALLOWED_SECONDS = 60.0
"""How long an allowed token is not reviewed again; a revoked permission takes effect within it."""
_TOKENS = 64

Refusal = tuple[int, str]


class Certificate:
    """The server side of TLS, from two files that may be replaced while the driver runs."""

    def __init__(self, cert: str, key: str) -> None:
        self._files = (Path(cert), Path(key))
        self._stamp, self._current = self._stamps(), self._load()
        self.context = self._load()
        self.context.sni_callback = self._renew

    def _renew(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                self._current, self._stamp = self._load(), stamp
        except (OSError, InvalidInput) as error:
            log.warning("Cannot reload the certificate; the previous one stays", error=error)
        connection.context = self._current

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        try:
            found = [path.stat() for path in self._files]
        except OSError as error:
            raise InvalidInput(f"--tls-cert-file, --tls-private-key-file: {error}") from error
        return tuple((one.st_mtime_ns, one.st_ino) for one in found)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput(f"--tls-cert-file, --tls-private-key-file: {error}") from error
        return context


class MetricsGuard:
    """Reviews the tokens of scrapes. If the API server does not answer, nothing is served."""

    def __init__(self, client: KubeClient, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._now = client, now
        self._allowed: dict[bytes, float] = {}
        """When each token was allowed, by its hash; oldest first."""

    async def refusal(self, authorization: str) -> Refusal | None:
        """None if the header's token gives access."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return 401, "Authentication required: send a bearer token"
        name = hashlib.sha256(token.strip().encode()).digest()
        if self._now() - self._allowed.get(name, -ALLOWED_SECONDS) < ALLOWED_SECONDS:
            return None
        try:
            refused = await self._review(token.strip())
        except KubeError as error:
            return 503, f"Cannot check the token: {error}"
        if refused is None:
            self._allowed.pop(name, None)
            self._allowed[name] = self._now()
            while len(self._allowed) > _TOKENS:
                self._allowed.pop(next(iter(self._allowed)))
        return refused

    async def _review(self, token: str) -> Refusal | None:
        user = await user_of(self._client, token)
        if user is None:
            return 401, "The token is invalid or has expired"
        if not await is_allowed(self._client, user, nonResourceAttributes={"path": "/metrics", "verb": "get"}):
            return 403, f"User {user.get('username', '')} may not get the non-resource URL /metrics"
        return None
