"""What a ttrpc frame carries, as protobuf classes. Declared in ttrpc.proto, typed in envelope.pyi."""

from dranet.nri.descriptors import load

globals().update(load("ttrpc.pb"))
