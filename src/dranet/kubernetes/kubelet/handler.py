"""The interface of a driver behind the kubelet plugin: no gRPC, no sockets, no protobuf.

Calls for different claims run concurrently. Calls for one claim run one after another, also across two instances of
the driver during an update. A call is never cancelled half-way: after its timeout the kubelet calls again and gets the
result of the first call. So both operations must be idempotent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from dranet.core.errors import DranetError
from dranet.core.names import ClaimRef

AFTER_REPLY_DELAY_SECONDS = 0.003
"""Delay of work after a reply. The reply needs a few more iterations of the event loop, which that work would slow."""


class KubeletError(DranetError):
    """An error between the driver and the kubelet."""


class RegistrationRefused(KubeletError):
    """The kubelet rejected the registration."""


class PrepareError(KubeletError):
    """The claim cannot be prepared; the text becomes an event of the pod, and the kubelet retries."""


class UnprepareError(KubeletError):
    """The claim cannot be unprepared; the kubelet retries, and the pod keeps terminating until it succeeds."""


class PreparedDevice(msgspec.Struct, frozen=True):
    """One prepared device: the claim's requests it serves and the CDI devices that the runtime injects."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: str | None = None


class Health(Enum):
    """The health of a device; unknown before the first check."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class DeviceHealth(msgspec.Struct, frozen=True):
    """The health of one device. Times are seconds since the epoch; a `timeout` of 0 takes the kubelet's default."""

    pool: str
    device: str
    health: Health
    updated_at: int
    message: str = ""
    timeout: int = 0


class ClaimHandler(Protocol):
    """The driver."""

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        """Prepare the claim's devices. Raise PrepareError (or any DranetError) to fail."""

    async def after_reply(self, claim: ClaimRef) -> None:
        """Work that the kubelet need not wait for; called after each successful `prepare` and `unprepare`, before the
        next call for the claim. Errors are only logged."""

    async def unprepare(self, claim: ClaimRef) -> None:
        """Release the claim's devices. An unknown claim is not an error."""

    def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """All devices now, and again after every change. Called once for each watch."""
