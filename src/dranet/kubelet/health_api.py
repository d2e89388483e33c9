"""Device health messages, the same for v1alpha1 and v1. Declared in health.proto, typed in health_api.pyi."""

from dranet.kubelet.descriptors import load

globals().update(load("health.pb"))
