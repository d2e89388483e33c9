"""What a ttrpc frame carries, as protobuf classes. Declared in ttrpc.proto, typed in envelope.pyi."""

from dranet.core.protobufs import load

globals().update(load(__file__, "ttrpc.pb"))
