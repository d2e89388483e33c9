# Made by tools/compile_protos.py
from collections.abc import Iterable as _Iterable

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers

DESCRIPTOR: _descriptor.FileDescriptor

class InfoRequest(_message.Message):
    def __init__(self) -> None: ...

class PluginInfo(_message.Message):
    type: str
    name: str
    endpoint: str
    supported_versions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(
        self,
        type: str | None = ...,
        name: str | None = ...,
        endpoint: str | None = ...,
        supported_versions: _Iterable[str] | None = ...,
    ) -> None: ...

class RegistrationStatus(_message.Message):
    plugin_registered: bool
    error: str
    def __init__(self, plugin_registered: bool | None = ..., error: str | None = ...) -> None: ...

class RegistrationStatusResponse(_message.Message):
    def __init__(self) -> None: ...
