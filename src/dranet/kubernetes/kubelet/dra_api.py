"""The messages of the DRA service, the same for v1 and v1beta1. Declared in dra.proto, typed in dra_api.pyi."""

from dranet.core.protobufs import load

globals().update(load(__file__, "dra.pb"))
