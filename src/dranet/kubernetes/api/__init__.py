"""The API server: a thin client, and what a driver writes (ResourceSlices, claim status, events).

Uses `resource.k8s.io/v1` objects everywhere; `resources` converts them for older servers. Knows nothing of the kernel.
"""
