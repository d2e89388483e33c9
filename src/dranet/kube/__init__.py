"""The API server: a thin client, and the three things a driver tells it (ResourceSlices, claim status, events).

Knows no kernel. Everything here speaks `resource.k8s.io/v1` shapes; older servers are met by conversion at the edge.
"""
