"""The kubelet's plugin registration messages. Declared in registration.proto, typed in registration_api.pyi."""

from dranet.core.protobufs import load

globals().update(load(__file__, "registration.pb"))
