"""The kubelet side of a DRA driver: registration, prepare and unprepare, device health, seamless updates.

Knows nothing of devices. `Plugin` serves a `ClaimHandler`; `dranet.kubernetes.kubelet.client` is a fake kubelet.
"""

from dranet.kubernetes.kubelet.handler import (
    ClaimHandler,
    DeviceHealth,
    Health,
    KubeletError,
    PreparedDevice,
    PrepareError,
    RegistrationRefused,
    UnprepareError,
)
from dranet.kubernetes.kubelet.plugin import Plugin
from dranet.kubernetes.kubelet.sockets import KUBELET_ROOT

__all__ = [
    "KUBELET_ROOT",
    "ClaimHandler",
    "DeviceHealth",
    "Health",
    "KubeletError",
    "Plugin",
    "PrepareError",
    "PreparedDevice",
    "RegistrationRefused",
    "UnprepareError",
]
