"""Protobuf message classes from a serialized descriptor.

Each descriptor gets a pool of its own, so that other packages in the process may use the same message names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass


def load(module: str, file: str) -> dict[str, Any]:
    """All message classes, enums and enum values of the descriptor file next to ``module``, by name."""
    # Not importlib.resources: it costs a megabyte, and the package is never run from an archive.
    descriptor = DescriptorPool().AddSerializedFile(Path(module).with_name(file).read_bytes())
    names: dict[str, Any] = {"DESCRIPTOR": descriptor}
    for name, message in descriptor.message_types_by_name.items():
        names[name] = GetMessageClass(message)
    for name, enum in descriptor.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names.update((value.name, value.number) for value in enum.values)
    return names
