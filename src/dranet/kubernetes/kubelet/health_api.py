"""Device health messages, the same for v1alpha1 and v1. Declared in health.proto, typed in health_api.pyi."""

from dranet.core.protobufs import load

globals().update(load(__file__, "health.pb"))
