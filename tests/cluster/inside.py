"""Looking into a running pod with this machine's own tools: its image has busybox only."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from dranet.linux.ethtool import Ethtool
from dranet.linux.links import list_links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from tests.cluster.kubebed import Cluster, Kubectl


def process_of(bed: Cluster, kubectl: Kubectl, pod: str) -> int:
    """One process of the pod, as this machine numbers it."""
    found = kubectl.get(f"pod/{pod}")
    return bed.node(found["spec"]["nodeName"]).pod_processes(found["metadata"]["uid"])[0]


def ip(process: int, *arguments: str) -> Any:
    """`ip -json -details` in the network namespace of a process."""
    command = ["nsenter", "-t", str(process), "-n", "ip", "-j", "-d", *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")


def link(process: int, name: str) -> dict[str, Any]:
    (found,) = ip(process, "link", "show", "dev", name)
    return dict(found)


def addresses(process: int, name: str) -> list[str]:
    """Every address with its prefix length, except the one the kernel gives to each link."""
    (found,) = ip(process, "address", "show", "dev", name)
    own = [entry for entry in found["addr_info"] if entry["scope"] != "link" or entry["family"] == "inet"]
    return [f"{entry['local']}/{entry['prefixlen']}" for entry in own]


def features(process: int, name: str) -> dict[str, bool]:
    """The features of a link that are on or off now, by the kernel's names."""
    index = link(process, name)["ifindex"]
    with Namespace.open(f"/proc/{process}/ns/net") as namespace, Ethtool(namespace.fd) as ethtool:
        return {key: feature.active for key, feature in ethtool.features(index).items()}


def offload_sizes(process: int, name: str) -> tuple[int | None, ...]:
    """Largest packets built for sending and receiving, for IPv6 and IPv4; not every iproute2 shows them."""
    with Namespace.open(f"/proc/{process}/ns/net") as namespace, NetlinkSocket(namespace_fd=namespace.fd) as route:
        (found,) = [entry for entry in list_links(route) if entry.name == name]
    return found.gso_max_size, found.gro_max_size, found.gso_ipv4_max_size, found.gro_ipv4_max_size
