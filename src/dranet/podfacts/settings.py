"""Settings for communication libraries, from the cards a pod has: opt-in, and never what the kernel contradicts.

Each library has one function that says which variables it gives and, where it leaves one alone, why. Names of RDMA
devices are exact, because NCCL takes `mlx5_1` for `mlx5_10` as well. What a user has set is not ours to change: NCCL's
settings go into /etc/nccl.conf, which loses against everything else; the others have no such file and are variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dranet.podfacts.card import EFA, ROCE, PodCard


@dataclass(slots=True)
class Settings:
    """Variables by name, and what was left alone with the reason."""

    variables: dict[str, str] = field(default_factory=dict)
    left_alone: dict[str, str] = field(default_factory=dict)


def settings(libraries: Sequence[str], cards: Sequence[PodCard], *, primary: str = "") -> Settings:
    """The settings of these libraries for a pod with these cards.

    ``primary`` is the pod's own interface, over which its name resolves; empty for a pod that has none.
    """
    found = Settings()
    for library in libraries:
        LIBRARIES[library](found, cards, primary)
    return found


def nccl_conf(found: Settings) -> bytes:
    """What of the settings belongs into /etc/nccl.conf: one NAME=value a line, taken literally."""
    lines = [f"{name}={value}" for name, value in found.variables.items() if name.startswith("NCCL_")]
    reasons = [f"# {name}: {why}" for name, why in found.left_alone.items() if name.startswith("NCCL_")]
    return "".join(line[:1023] + "\n" for line in [*reasons, *lines]).encode()


def _interfaces(cards: Sequence[PodCard]) -> list[str]:
    return [card.interface for card in cards if card.interface and card.addresses]


def _nccl(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    verbs = [card for card in cards if card.rdma_device and card.fabric != EFA]
    names = _interfaces(cards)
    if verbs:
        found.variables["NCCL_IB_HCA"] = "=" + ",".join(card.verbs_name for card in verbs)
    if verbs and primary:
        # Without it NCCL takes the first interface it finds for its bootstrap, which may be a card on another network.
        found.variables["NCCL_SOCKET_IFNAME"] = f"={primary}"
    elif names and not verbs:
        found.variables["NCCL_SOCKET_IFNAME"] = "=" + ",".join(names)
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
    indexes = {card.gid.index for card in cards if card.gid}
    if len(indexes) == 1 and all(card.gid for card in cards if card.fabric == ROCE):
        found.variables["UCX_IB_GID_INDEX"] = str(indexes.pop())
    elif indexes:
        found.left_alone["UCX_IB_GID_INDEX"] = "one number is for all cards and theirs differ; UCX chooses for each"


def _mpi(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    names = _interfaces(cards)
    if names:
        found.variables["OMPI_MCA_btl_tcp_if_include"] = ",".join(names)
    found.left_alone["OMPI_MCA_oob_tcp_if_include"] = "the launcher's own connections stay on the pod's network"


def _gloo(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    names = _interfaces(cards)
    if names:
        found.variables["GLOO_SOCKET_IFNAME"] = ",".join(names)
        found.variables["TP_SOCKET_IFNAME"] = names[0]


def _efa(found: Settings, cards: Sequence[PodCard], primary: str) -> None:
    if any(card.fabric == EFA for card in cards):
        found.variables["FI_PROVIDER"] = "efa"


LIBRARIES: dict[str, Callable[[Settings, Sequence[PodCard], str], None]] = {
    "nccl": _nccl,
    "ucx": _ucx,
    "mpi": _mpi,
    "gloo": _gloo,
    "efa": _efa,
}
