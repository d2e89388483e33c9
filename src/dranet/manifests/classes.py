"""DeviceClasses people use without writing them down: a driver's installation brings them along."""

from __future__ import annotations

from typing import Any

_SELECTORS = {
    "dranet": 'device.driver == "dra.net"',
    "dranet-rdma": 'device.driver == "dra.net" && device.attributes["dra.net"].rdma',
    "dranet.net": 'device.driver == "dra.net"',
    "dra.net": 'device.driver == "dra.net"',
    "gpu.nvidia.com": ("device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"),
    "mig.nvidia.com": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'",
    "vfio.gpu.nvidia.com": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'vfio'",
    "gpu.amd.com": "device.driver == 'gpu.amd.com'",
    "compute-domain-daemon.nvidia.com": (
        "device.driver == 'compute-domain.nvidia.com' && "
        "device.attributes['compute-domain.nvidia.com'].type == 'daemon'"
    ),
    "compute-domain-default-channel.nvidia.com": (
        "device.driver == 'compute-domain.nvidia.com' && "
        "device.attributes['compute-domain.nvidia.com'].type == 'channel' && "
        "device.attributes['compute-domain.nvidia.com'].id == 0"
    ),
}

FROM_WHERE = dict.fromkeys(_SELECTORS, "NVIDIA's DRA driver installs it") | {
    "dranet": "dranet's chart installs it",
    "dranet-rdma": "dranet's chart installs it",
    "dranet.net": "it has to be applied with the manifests",
    "dra.net": "it has to be applied with the manifests",
}
"""How each of them comes into a cluster."""


def known_classes() -> dict[str, dict[str, Any]]:
    """The usual classes by name, as v1 objects; a file that defines one of them overrides it."""
    return {
        name: {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }
        for name, expression in _SELECTORS.items()
    }
