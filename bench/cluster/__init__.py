"""Drivers on a real two-node Kubernetes on this machine, one after the other in one run."""
