"""The features of devices, one module each with a `FEATURE`. Other packages use the interface exported here."""

from dranet.node.features.base import (
    Answers,
    AttachError,
    Feature,
    LinkProvider,
    NodeContext,
    RecoveryContext,
    Step,
)
from dranet.node.features.host_tables import HostTables
from dranet.node.features.registry import FEATURES, AnyFeature, Features

__all__ = [
    "FEATURES",
    "Answers",
    "AnyFeature",
    "AttachError",
    "Feature",
    "Features",
    "HostTables",
    "LinkProvider",
    "NodeContext",
    "RecoveryContext",
    "Step",
]
