"""The daemon: the kubelet's calls, the runtime's hooks, recovery, health, metrics, probes and flags."""
