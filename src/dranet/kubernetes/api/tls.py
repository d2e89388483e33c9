"""TLS settings for one API server: trusted authorities and the client certificate.

Both change while the program runs: files are rotated, and an exec plugin returns new certificates. A connection keeps
the settings it began with, so every change makes a new context, and `dranet.kubernetes.api.http` does not reuse
connections of an old one.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dranet.kubernetes.api.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class Trust(msgspec.Struct, frozen=True):
    """Certificate authorities (PEM; None: the system's) and the client certificate."""

    authority: bytes | None = None
    pair: KeyPair | None = None


class ClientTls:
    """Makes the SSL context of new connections; a change of one of ``files`` makes ``read`` run again."""

    def __init__(self, read: Callable[[], Trust], *, files: Sequence[Path] = (), verify: bool = True) -> None:
        self._read = read
        self._files = files
        self._verify = verify
        self._certificate: KeyPair | None = None
        self._stamp = self._times()
        self._context = self._make()

    def context(self) -> ssl.SSLContext:
        """For the next connection; a new object after a file has changed, and after :meth:`use_certificate`."""
        stamp = self._times()
        if stamp != self._stamp:
            with contextlib.suppress(ConfigError):  # half written: use the old context until the file is complete
                self._context = self._make()
                self._stamp = stamp
        return self._context

    def use_certificate(self, pair: KeyPair) -> None:
        """Use this client certificate for new connections."""
        self._certificate = pair
        self._context = self._make()

    def _times(self) -> tuple[int, ...]:
        return tuple(_changed(path) for path in self._files)

    def _make(self) -> ssl.SSLContext:
        trust = self._read()
        context = _trusting(trust.authority)
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if pair := self._certificate or trust.pair:
            _load(context, pair)
        return context


def _trusting(authority: bytes | None) -> ssl.SSLContext:
    if authority is not None and not authority.strip():  # an empty cadata would trust the system's authorities
        raise ConfigError("the cluster's certificate authority is empty")
    try:
        return ssl.create_default_context(cadata=None if authority is None else authority.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the cluster's certificate authority is not a PEM certificate: {error}") from error


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    """The ssl module reads client certificates only from files, so write a private temporary one."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate.rstrip() + b"\n" + pair.key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            raise ConfigError(f"the client certificate does not match its key: {error}") from error
