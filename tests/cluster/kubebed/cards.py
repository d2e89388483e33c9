"""The network cards of a node, for a driver to find and hand out: virtual links into a fabric that joins all nodes.

The fabric is one bridge for each rail in a network namespace of its own, so nothing of it shows on the machine or
on the nodes. A card is one end of a cable (veth) to its rail's bridge, or a macvlan on such a cable. Both are
virtual: when a pod's namespace dies with a card in it the card is gone, where a physical one would come home by
itself.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Literal

from .cache import BedError


@dataclass(frozen=True)
class Card:
    """One card of one node. `rail` says which cards of different nodes share a wire."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()
    rail: int = 0
    mtu: int = 1500
    kind: Literal["veth", "macvlan"] = "veth"


def default_cards(node_index: int, count: int = 8) -> tuple[Card, ...]:
    """`nic0`, `nic1` ...: card K of every node is on rail K and has address 192.168.K.<node>."""
    return tuple(
        Card(f"nic{k}", f"02:be:d0:00:{node_index:02x}:{k:02x}", (f"192.168.{k}.{node_index}/24",), rail=k)
        for k in range(count)
    )


class Fabric:
    """The wires between cards; `holder` is the process whose network namespace holds the bridges."""

    def __init__(self, holder: int) -> None:
        self._holder = holder

    def plug(self, card: Card, node_index: int, node_pid: int) -> None:
        """Make `card` in the node's network namespace, up, on its rail."""
        bridge, port = f"rail{card.rail}", _port(card, node_index)
        self._ip(f"link add {bridge} type bridge", accept="File exists")
        self._ip(f"link set {bridge} up")
        inner = card.name if card.kind == "veth" else f"w-{card.name}"
        self._ip(f"link add {port} master {bridge} type veth peer name {inner} netns {node_pid}")
        self._ip(f"link set {port} mtu {card.mtu} up")
        in_namespace(node_pid, f"link set {inner} mtu {card.mtu} up")
        if card.kind == "macvlan":
            in_namespace(node_pid, f"link add {card.name} link {inner} type macvlan mode bridge")
        self._configure(card, node_pid)

    def unplug(self, card: Card, node_index: int) -> None:
        """Pull the cable: the card is gone wherever it was."""
        self._ip(f"link del {_port(card, node_index)}", accept="Cannot find device")

    def _configure(self, card: Card, node_pid: int) -> None:
        in_namespace(node_pid, f"link set {card.name} address {card.mac}")
        in_namespace(node_pid, f"link set {card.name} mtu {card.mtu} up")
        for address in card.addresses:
            in_namespace(node_pid, f"addr add {address} dev {card.name}")

    def _ip(self, command: str, accept: str = "") -> None:
        in_namespace(self._holder, command, accept)


def _port(card: Card, node_index: int) -> str:
    """The fabric's end of the cable. Interface names have 15 characters, so a card's may have no more than 12."""
    return f"n{node_index}-{card.name}"


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
