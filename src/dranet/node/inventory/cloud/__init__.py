"""Cloud providers: what the cloud that a node runs in knows about its devices.

Each provider is one file with the interface of :mod:`dranet.node.inventory.cloud.provider`. Other packages register
theirs in the entry point group ``dranet.cloud_providers``.
"""

from dranet.node.inventory.cloud.detection import (
    DetectionResult,
    DetectionTimeouts,
    check_options,
    find_provider,
    hint_problem,
    installed_clouds,
)
from dranet.node.inventory.cloud.http import CloudError, HttpClient
from dranet.node.inventory.cloud.provider import (
    Cloud,
    CloudContext,
    CloudProvider,
    ConfigJson,
    Firmware,
    Identity,
    NodeNetwork,
    ProfileProvider,
)

__all__ = [
    "Cloud",
    "CloudContext",
    "CloudError",
    "CloudProvider",
    "ConfigJson",
    "DetectionResult",
    "DetectionTimeouts",
    "Firmware",
    "HttpClient",
    "Identity",
    "NodeNetwork",
    "ProfileProvider",
    "check_options",
    "find_provider",
    "hint_problem",
    "installed_clouds",
]
