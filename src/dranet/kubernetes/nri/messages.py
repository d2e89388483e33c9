"""The messages of the Node Resource Interface, as protobuf classes. Declared in nri.proto, typed in messages.pyi."""

from dranet.core.protobufs import load

globals().update(load(__file__, "nri.pb"))
