"""Settings for communication libraries, from the cards a pod has: opt-in, and never what the kernel contradicts.

Each library has one function that says which variables it gives and, where it leaves one alone, why. Names of RDMA
devices are exact, because NCCL takes `mlx5_1` for `mlx5_10` as well. What a user has set is not ours to change: NCCL's
settings go into /etc/nccl.conf, which loses against everything else; the others have no such file and are variables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from dranet.podfacts.card import EFA, ROCE, PodCard

_NCCL, _MPI = "NCCL_", "OMPI_MCA_"
_LINE = 1023
"""NCCL reads no longer line of its file."""


class Settings(msgspec.Struct):
    """Variables by name, and what was left alone with the reason."""

    variables: dict[str, str] = msgspec.field(default_factory=dict)
    left_alone: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What containers get as variables: all but what NCCL reads from its file."""
        return {name: value for name, value in self.variables.items() if not name.startswith(_NCCL)}

    def leave_alone(self, names: Collection[str]) -> None:
        """Set nothing that the pod's containers set themselves; NCCL's file loses against those anyway."""
        for name in set(names) & set(self.environment):
            del self.variables[name]
            self.left_alone[name] = "a container of the pod sets it itself"


def settings(cards: Mapping[str, Sequence[PodCard]], *, primary: str = "", topology: str = "") -> Settings:
    """The settings for a pod, from the cards that each library is to be told of.

    ``primary`` is the pod's own interface, over which its name resolves; empty for a pod that has none. ``topology`` is
    the path of NCCL's topology file in containers; empty where there is none.
    """
    found = Settings()
    for library, own in cards.items():
        if own:
            LIBRARIES[library](found, own, primary)
    if cards.get("nccl") and topology:
        found.variables["NCCL_TOPO_FILE"] = topology
    elif cards.get("nccl"):
        found.left_alone["NCCL_TOPO_FILE"] = "the claim has no GPU whose PCI address is known, or its cards are EFA"
    return found


def nccl_conf(found: Settings) -> bytes:
    """What of the settings belongs into /etc/nccl.conf: one NAME=value a line, taken literally."""
    lines = [f"{name}={value}" for name, value in found.variables.items() if name.startswith(_NCCL)]
    reasons = [f"# {name}: {why}"[:_LINE] for name, why in found.left_alone.items() if name.startswith(_NCCL)]
    return "".join(f"{line}\n" for line in [*reasons, *lines]).encode()


def mpi_conf(found: Settings) -> bytes:
    """The same for Open MPI, whose ranks are often started by ssh and so without a container's variables."""
    own = {name.removeprefix(_MPI): value for name, value in found.variables.items() if name.startswith(_MPI)}
    return "".join(f"{name} = {value}\n" for name, value in own.items()).encode()


def _interfaces(cards: Sequence[PodCard]) -> list[str]:
    return [card.interface for card in cards if card.interface and card.addresses]


def _no_address(found: Settings, *names: str) -> None:
    found.left_alone |= dict.fromkeys(names, "none of the cards has an interface with an address that is known now")


def _nccl(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    verbs = [card for card in cards if card.rdma_device and card.fabric != EFA]
    names = _interfaces(cards)
    if verbs:
        found.variables["NCCL_IB_HCA"] = "=" + ",".join(card.verbs_name for card in verbs)
    if verbs and primary:
        # Without it NCCL takes the first interface it finds for its bootstrap, which may be a card on another network.
        found.variables["NCCL_SOCKET_IFNAME"] = f"={primary}"
    elif verbs:
        found.left_alone["NCCL_SOCKET_IFNAME"] = "the pod has no network but its cards"
    elif names:
        found.variables["NCCL_SOCKET_IFNAME"] = "=" + ",".join(names)
    else:
        _no_address(found, "NCCL_SOCKET_IFNAME")
    _nccl_gids(found, [card for card in verbs if card.fabric == ROCE])


def _nccl_gids(found: Settings, roce: Sequence[PodCard]) -> None:
    if not roce:
        return
    missing = [card.rdma_device for card in roce if card.gid is None]
    indexes = {card.gid.index for card in roce if card.gid}
    if missing:
        found.left_alone["NCCL_IB_GID_INDEX"] = f"no RoCE v2 GID of its own address seen for {', '.join(missing)}"
    elif len(indexes) == 1:
        found.variables["NCCL_IB_GID_INDEX"] = str(indexes.pop())
    else:
        each = ", ".join(f"{card.rdma_device} {card.gid.index}" for card in roce if card.gid)
        found.left_alone["NCCL_IB_GID_INDEX"] = f"one number is for all cards and theirs differ: {each}"
    if all(card.gid and card.gid.address.version == 6 for card in roce):
        found.variables["NCCL_IB_ADDR_FAMILY"] = "AF_INET6"


def _ucx(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    verbs = [card.verbs_name for card in cards if card.rdma_device and card.fabric != EFA]
    # The list excludes everything it does not name: with RDMA devices alone, TCP would be gone.
    names = [*verbs, *_interfaces(cards)]
    if names:
        found.variables["UCX_NET_DEVICES"] = ",".join(names)
    else:
        _no_address(found, "UCX_NET_DEVICES")
    indexes = {card.gid.index for card in cards if card.gid}
    if len(indexes) == 1 and all(card.gid for card in cards if card.fabric == ROCE):
        found.variables["UCX_IB_GID_INDEX"] = str(indexes.pop())
    elif indexes:
        found.left_alone["UCX_IB_GID_INDEX"] = "one number is for all cards and theirs differ; UCX chooses for each"


def _mpi(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    names = _interfaces(cards)
    if names:
        found.variables["OMPI_MCA_btl_tcp_if_include"] = ",".join(names)
    else:
        _no_address(found, "OMPI_MCA_btl_tcp_if_include")
    found.left_alone["OMPI_MCA_oob_tcp_if_include"] = "the launcher's own connections stay on the pod's network"


def _gloo(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    names = _interfaces(cards)
    if names:
        found.variables["GLOO_SOCKET_IFNAME"] = ",".join(names)
        found.variables["TP_SOCKET_IFNAME"] = names[0]
    else:
        _no_address(found, "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def _efa(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    if any(card.fabric == EFA for card in cards):
        found.variables["FI_PROVIDER"] = "efa"
    else:
        found.left_alone["FI_PROVIDER"] = "none of the cards is an EFA"


LIBRARIES: dict[str, Callable[[Settings, Sequence[PodCard], str], None]] = {
    "nccl": _nccl,
    "ucx": _ucx,
    "mpi": _mpi,
    "gloo": _gloo,
    "efa": _efa,
}
