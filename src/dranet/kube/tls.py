"""TLS towards one API server: whom we trust, and the certificate that says who we are.

A certificate from a plugin is replaced while we run. A connection goes on with the one it began with, so a new
certificate makes a new context, and connections of the old one are not used again (see :mod:`dranet.kube.http`).
"""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field

from dranet.kube.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class ClientTls:
    """Makes the context of new connections."""

    def __init__(self, authority: bytes | None = None, *, verify: bool = True, pair: Pair | None = None) -> None:
        self._authority = authority
        self._verify = verify
        self._context = self._make(pair)

    def context(self) -> ssl.SSLContext:
        """For the next connection; another object after :meth:`show`."""
        return self._context

    def show(self, pair: Pair) -> None:
        """Identify ourselves with this certificate from now on."""
        self._context = self._make(pair)

    def _make(self, pair: Pair | None) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(
                cadata=self._authority.decode("ascii", "ignore") if self._authority else None
            )
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"the cluster's certificate authority is no PEM certificate: {error}") from error
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if pair is not None:
            _load(context, pair)
        return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """The standard library takes client certificates from files only: one that nobody else can read, briefly."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate.rstrip() + b"\n" + pair.key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            raise ConfigError(f"the client certificate and its key do not go together: {error}") from error
