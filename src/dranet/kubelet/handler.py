"""What a driver must be able to do, in the driver's words: no gRPC, no sockets, no protobuf.

Calls for different claims run side by side; calls for one claim run one after another, also across two instances of
the driver during an update. A call is never cancelled half-way: when the kubelet loses patience it asks again, and
the second call finds the first one's result. So both operations must be idempotent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from dranet.model.errors import DranetError
from dranet.model.names import ClaimRef

ANSWER_FIRST_SECONDS = 0.003
"""How long work that nobody waits for holds back after a call. The answer has some more turns of the event loop to go,
and would have to share each of them with that work."""


class KubeletError(DranetError):
    """Something between us and the kubelet went wrong."""


class RegistrationRefused(KubeletError):
    """The kubelet found the plugin and does not want it."""


class PrepareError(KubeletError):
    """The claim cannot be made ready; the text becomes an event of the pod, and the kubelet tries again later."""


class UnprepareError(KubeletError):
    """The claim's devices could not be let go; the kubelet tries again, and the pod stays until it works."""


class PreparedDevice(msgspec.Struct, frozen=True):
    """One device made ready. `requests` are the claim's requests it serves, `cdi_ids` what the runtime must inject."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: str | None = None


class Health(Enum):
    """What the kubelet is told of a device; unknown where the driver has not looked yet."""

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
    """The driver behind the plugin."""

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        """Make the claim's devices ready. Raise PrepareError (or any DranetError) to refuse."""

    async def prepared(self, claim: ClaimRef) -> None:
        """The kubelet is told that the claim is prepared: what it need not wait for. Nobody hears of errors."""

    async def unprepare(self, claim: ClaimRef) -> None:
        """Let the claim's devices go. A claim never heard of is no error."""

    def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """All devices now, and again whenever one changes. Called once for each listener."""
