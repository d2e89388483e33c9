"""The kubelet's side of a DRA driver: registration, prepare and unprepare, device health, seamless updates.

Knows nothing of devices. `Plugin` serves a `ClaimHandler`; `dranet.kubelet.client` plays the kubelet.
"""

from dranet.kubelet.handler import (
    ClaimHandler,
    DeviceHealth,
    Health,
    KubeletError,
    PreparedDevice,
    PrepareError,
    RegistrationRefused,
    UnprepareError,
)
from dranet.kubelet.plugin import Plugin
from dranet.kubelet.sockets import KUBELET_ROOT

__all__ = [
    "ClaimHandler",
    "DeviceHealth",
    "Health",
    "KUBELET_ROOT",
    "KubeletError",
    "Plugin",
    "PrepareError",
    "PreparedDevice",
    "RegistrationRefused",
    "UnprepareError",
]
