"""Kubernetes: the API client, the kubelet plugin and the runtime plugin (NRI), each a library of its own."""
