# Made by tools/compile_protos.py
from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    service: str
    method: str
    payload: bytes
    timeout_nano: int
    metadata: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(
        self,
        service: str | None = ...,
        method: str | None = ...,
        payload: bytes | None = ...,
        timeout_nano: int | None = ...,
        metadata: _Iterable[KeyValue | _Mapping[str, object]] | None = ...,
    ) -> None: ...

class KeyValue(_message.Message):
    key: str
    value: str
    def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

class Response(_message.Message):
    status: Status
    payload: bytes
    def __init__(self, status: Status | _Mapping[str, object] | None = ..., payload: bytes | None = ...) -> None: ...

class Status(_message.Message):
    code: int
    message: str
    def __init__(self, code: int | None = ..., message: str | None = ...) -> None: ...
