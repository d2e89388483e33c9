"""TLS towards one API server: whom we trust, and the certificate that says who we are.

Both are replaced while we run: files by whoever rotates them, a plugin's certificate by the plugin. A connection goes
on with what it began with, so a change makes a new context, and connections of the old one are not used again (see
:mod:`dranet.kube.http`).
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dranet.kube.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class Trust(msgspec.Struct, frozen=True):
    """Certificate authorities (PEM; None: the system's), and our own certificate."""

    authority: bytes | None = None
    pair: Pair | None = None


class ClientTls:
    """Makes the context of new connections; ``files`` are what ``read`` reads, looked at before every use."""

    def __init__(self, read: Callable[[], Trust], *, files: Sequence[Path] = (), verify: bool = True) -> None:
        self._read = read
        self._files = files
        self._verify = verify
        self._shown: Pair | None = None
        self._stamp = self._times()
        self._context = self._make()

    def context(self) -> ssl.SSLContext:
        """For the next connection; another object after a file has changed, and after :meth:`show`."""
        stamp = self._times()
        if stamp != self._stamp:
            with contextlib.suppress(ConfigError):  # half written: the old one serves until it is whole
                self._context = self._make()
                self._stamp = stamp
        return self._context

    def show(self, pair: Pair) -> None:
        """Identify ourselves with this certificate from now on."""
        self._shown = pair
        self._context = self._make()

    def _times(self) -> tuple[int, ...]:
        return tuple(_changed(path) for path in self._files)

    def _make(self) -> ssl.SSLContext:
        trust = self._read()
        context = _trusting(trust.authority)
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if pair := self._shown or trust.pair:
            _load(context, pair)
        return context


def _trusting(authority: bytes | None) -> ssl.SSLContext:
    if authority is not None and not authority.strip():  # else the system's authorities would be trusted instead
        raise ConfigError("the cluster's certificate authority is empty")
    try:
        return ssl.create_default_context(cadata=None if authority is None else authority.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the cluster's certificate authority is no PEM certificate: {error}") from error


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """The standard library takes client certificates from files only: one that nobody else can read, briefly."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate.rstrip() + b"\n" + pair.key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            raise ConfigError(f"the client certificate and its key do not go together: {error}") from error
