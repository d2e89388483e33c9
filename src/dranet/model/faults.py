"""Why a device cannot serve now: found by the inventory, published as taints, told to the kubelet as health."""

from __future__ import annotations

from enum import StrEnum


class FaultKind(StrEnum):
    """The value is the last part of the taint's key."""

    LINK_DOWN = "link-down"
    RDMA_PORT_DOWN = "rdma-port-down"
    DRIVER_UNBOUND = "driver-unbound"
    DEVICE_GONE = "device-gone"
    NETDEV_ELSEWHERE = "netdev-elsewhere"
    LINK_FLAPPING = "link-flapping"
    SLOW_LINK = "slow-link"
    PCIE_DEGRADED = "pcie-degraded"
    PORT_ERRORS = "port-errors"
    CARD_MISSING = "card-missing"
    MTU_MISMATCH = "mtu-mismatch"
    GID_MISSING = "gid-missing"
    FIRMWARE_MISMATCH = "firmware-mismatch"
    NO_GPUDIRECT = "no-gpudirect"
