# Made by tools/compile_protos.py
from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

DESCRIPTOR: _descriptor.FileDescriptor

class HealthStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    UNKNOWN: _ClassVar[HealthStatus]
    HEALTHY: _ClassVar[HealthStatus]
    UNHEALTHY: _ClassVar[HealthStatus]

UNKNOWN: HealthStatus
HEALTHY: HealthStatus
UNHEALTHY: HealthStatus

class NodeWatchResourcesRequest(_message.Message):
    def __init__(self) -> None: ...

class DeviceIdentifier(_message.Message):
    pool_name: str
    device_name: str
    def __init__(self, pool_name: str | None = ..., device_name: str | None = ...) -> None: ...

class DeviceHealth(_message.Message):
    device: DeviceIdentifier
    health: HealthStatus
    last_updated_time: int
    health_check_timeout_seconds: int
    message: str
    def __init__(
        self,
        device: DeviceIdentifier | _Mapping[str, object] | None = ...,
        health: HealthStatus | str | None = ...,
        last_updated_time: int | None = ...,
        health_check_timeout_seconds: int | None = ...,
        message: str | None = ...,
    ) -> None: ...

class NodeWatchResourcesResponse(_message.Message):
    devices: _containers.RepeatedCompositeFieldContainer[DeviceHealth]
    def __init__(self, devices: _Iterable[DeviceHealth | _Mapping[str, object]] | None = ...) -> None: ...
