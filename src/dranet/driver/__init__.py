"""The daemon: claims prepared, cards moved into pods and home again. Where the kernel and Kubernetes meet.

`serving` has the callers (kubelet, runtime, timer) and puts everything together, `claims` decides, `moving` carries out
over the `parts` of a device, `records` and `store` keep what was decided.
"""
