"""The messages of the Node Resource Interface, as protobuf classes. Declared in nri.proto, typed in messages.pyi."""

from dranet.nri.descriptors import load

globals().update(load("nri.pb"))
