"""DRANET in Python: network and RDMA devices for Kubernetes pods, through Dynamic Resource Allocation."""

__version__ = "0.2.0"
