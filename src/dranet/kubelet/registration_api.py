"""The kubelet's plugin registration messages. Declared in registration.proto, typed in registration_api.pyi."""

from dranet.kubelet.descriptors import load

globals().update(load("registration.pb"))
