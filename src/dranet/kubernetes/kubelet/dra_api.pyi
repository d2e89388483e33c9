# Made by tools/compile_protos.py
from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers

DESCRIPTOR: _descriptor.FileDescriptor

class Claim(_message.Message):
    namespace: str
    uid: str
    name: str
    def __init__(self, namespace: str | None = ..., uid: str | None = ..., name: str | None = ...) -> None: ...

class NodePrepareResourcesRequest(_message.Message):
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    def __init__(self, claims: _Iterable[Claim | _Mapping[str, object]] | None = ...) -> None: ...

class NodePrepareResourcesResponse(_message.Message):
    class ClaimsEntry(_message.Message):
        key: str
        value: NodePrepareResourceResponse
        def __init__(
            self, key: str | None = ..., value: NodePrepareResourceResponse | _Mapping[str, object] | None = ...
        ) -> None: ...

    claims: _containers.MessageMap[str, NodePrepareResourceResponse]
    def __init__(self, claims: _Mapping[str, NodePrepareResourceResponse] | None = ...) -> None: ...

class NodePrepareResourceResponse(_message.Message):
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    error: str
    def __init__(
        self, devices: _Iterable[Device | _Mapping[str, object]] | None = ..., error: str | None = ...
    ) -> None: ...

class Device(_message.Message):
    request_names: _containers.RepeatedScalarFieldContainer[str]
    pool_name: str
    device_name: str
    cdi_device_ids: _containers.RepeatedScalarFieldContainer[str]
    share_id: str
    def __init__(
        self,
        request_names: _Iterable[str] | None = ...,
        pool_name: str | None = ...,
        device_name: str | None = ...,
        cdi_device_ids: _Iterable[str] | None = ...,
        share_id: str | None = ...,
    ) -> None: ...

class NodeUnprepareResourcesRequest(_message.Message):
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    def __init__(self, claims: _Iterable[Claim | _Mapping[str, object]] | None = ...) -> None: ...

class NodeUnprepareResourcesResponse(_message.Message):
    class ClaimsEntry(_message.Message):
        key: str
        value: NodeUnprepareResourceResponse
        def __init__(
            self, key: str | None = ..., value: NodeUnprepareResourceResponse | _Mapping[str, object] | None = ...
        ) -> None: ...

    claims: _containers.MessageMap[str, NodeUnprepareResourceResponse]
    def __init__(self, claims: _Mapping[str, NodeUnprepareResourceResponse] | None = ...) -> None: ...

class NodeUnprepareResourceResponse(_message.Message):
    error: str
    def __init__(self, error: str | None = ...) -> None: ...
