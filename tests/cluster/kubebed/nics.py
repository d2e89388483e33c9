"""The NICs of a node, for a driver to find and hand out: virtual links into a fabric that joins all nodes.

The fabric is one bridge for each rail in a network namespace of its own, so nothing of it shows on the machine or
on the nodes. A NIC is one end of a cable (veth) to its rail's bridge, or a macvlan on such a cable. Both are
virtual: when a pod's namespace dies with a NIC in it the NIC is gone, where a physical one would return to the host by
itself.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Literal

from .cache import BedError


@dataclass(frozen=True)
class Nic:
    """One NIC of one node. `rail` says which NICs of different nodes share a wire."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()
    rail: int = 0
    mtu: int = 1500
    kind: Literal["veth", "macvlan"] = "veth"


def default_nics(node_index: int, count: int = 8) -> tuple[Nic, ...]:
    """`nic0`, `nic1` ...: NIC K of every node is on rail K and has address 192.168.K.<node>."""
    return tuple(
        Nic(f"nic{k}", f"02:be:d0:00:{node_index:02x}:{k:02x}", (f"192.168.{k}.{node_index}/24",), rail=k)
        for k in range(count)
    )


class Fabric:
    """The wires between NICs; `holder` is the process whose network namespace holds the bridges."""

    def __init__(self, holder: int) -> None:
        self._holder = holder

    def plug(self, nic: Nic, node_index: int, node_pid: int) -> None:
        """Make `nic` in the node's network namespace, up, on its rail."""
        bridge, port = f"rail{nic.rail}", _port(nic, node_index)
        self._ip(f"link add {bridge} type bridge", accept="File exists")
        self._ip(f"link set {bridge} up")
        inner = nic.name if nic.kind == "veth" else f"w-{nic.name}"
        self._ip(f"link add {port} master {bridge} type veth peer name {inner} netns {node_pid}")
        self._ip(f"link set {port} mtu {nic.mtu} up")
        in_namespace(node_pid, f"link set {inner} mtu {nic.mtu} up")
        if nic.kind == "macvlan":
            in_namespace(node_pid, f"link add {nic.name} link {inner} type macvlan mode bridge")
        self._configure(nic, node_pid)

    def unplug(self, nic: Nic, node_index: int) -> None:
        """Pull the cable: the NIC is gone wherever it was."""
        self._ip(f"link del {_port(nic, node_index)}", accept="Cannot find device")

    def _configure(self, nic: Nic, node_pid: int) -> None:
        in_namespace(node_pid, f"link set {nic.name} address {nic.mac}")
        in_namespace(node_pid, f"link set {nic.name} mtu {nic.mtu} up")
        for address in nic.addresses:
            in_namespace(node_pid, f"addr add {address} dev {nic.name}")

    def _ip(self, command: str, accept: str = "") -> None:
        in_namespace(self._holder, command, accept)


def _port(nic: Nic, node_index: int) -> str:
    """The fabric's end of the cable. Interface names have 15 characters, so a NIC's may have no more than 12."""
    return f"n{node_index}-{nic.name}"


def ip(command: str, accept: str = "") -> str:
    """`ip <command>` on this machine; an error containing `accept` is taken for success."""
    return _run(["ip", *command.split()], accept)


def in_namespace(pid: int, command: str, accept: str = "") -> str:
    """`ip <command>` in the network namespace of a process."""
    return _run(["nsenter", "-t", str(pid), "-n", "ip", *command.split()], accept)


def _run(command: list[str], accept: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 and not (accept and accept in done.stderr):
        raise BedError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
