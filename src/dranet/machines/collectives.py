"""Collectives and NCCL's algorithms for them: how many bytes each moves, and in how many steps.

Bus bandwidth is nccl-tests' ``busbw``: the time of a collective as if it had run as a flat ring. So it equals the rate
of a wire only for rings. A tree between two nodes sends each byte over the network once, where a ring sends it nearly
twice, and shows up to 1.875 times the rate of the wire.
"""

from __future__ import annotations

import math

import msgspec

RING, TREE, NVLS, NVLS_TREE, PAT, COLLNET = "Ring", "Tree", "NVLS", "NVLSTree", "PAT", "CollNet"
DIRECT = "direct"
"""`DIRECT` is not an NCCL algorithm: all_to_all and send/recv send to each peer directly."""

ALL_REDUCE, ALL_GATHER = "all_reduce", "all_gather"

_ROUNDS = {
    ALL_REDUCE: 2,
    ALL_GATHER: 1,
    "reduce_scatter": 1,
    "all_to_all": 1,
    "broadcast": 1,
    "reduce": 1,
    "send_recv": 1,
}
_WHOLE = {"broadcast", "reduce", "send_recv"}
"""Collectives whose bus bandwidth is the size over the time."""

_SPELLINGS = {"alltoall": "all_to_all", "sendrecv": "send_recv", "allreduce": ALL_REDUCE, "allgather": ALL_GATHER}

COLLECTIVES = tuple(_ROUNDS)


class Ranks(msgspec.Struct, frozen=True):
    """The ranks and pods of a job; NCCL treats a pod as a node."""

    total: int
    pods: int

    @property
    def per_pod(self) -> float:
        """Ranks in one pod; the mean where pods differ."""
        return self.total / self.pods


def canonical_name(collective: str) -> str:
    """The name used here, for the spellings of nccl-tests and others."""
    return _SPELLINGS.get(collective, collective)


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (size over time), as in nccl-tests."""
    return 1.0 if collective in _WHOLE else _ROUNDS[collective] * (ranks - 1) / ranks


def network_share(algorithm: str, collective: str, ranks: Ranks) -> float:
    """Bus bandwidth over the rate of one pod's network, if the network is the limit."""
    if algorithm in {RING, PAT}:
        return 1.0
    if algorithm == DIRECT:
        return _direct_share(collective, ranks)
    if algorithm == COLLNET:  # the switches reduce: every byte leaves and enters a pod once
        return bus_factor(collective, ranks.total)
    return bus_factor(collective, ranks.total) if ranks.pods == 2 else (ranks.total - 1) / ranks.total


def _direct_share(collective: str, ranks: Ranks) -> float:
    """all_to_all sends to every rank outside the pod; send/recv has one pair of GPUs on each network link."""
    if collective == "send_recv":
        return 1 / ranks.per_pod
    return (ranks.total - 1) / (ranks.total - ranks.per_pod) / ranks.per_pod


class Steps(msgspec.Struct, frozen=True):
    """The number of sequential steps of a message of any size."""

    network: float = 0.0
    inside: float = 0.0
    nvls: float = 0.0


def steps(algorithm: str, collective: str, ranks: Ranks) -> Steps:
    """The steps of one collective, as NCCL's own model counts them."""
    rounds, depth = _ROUNDS[collective], math.log2(ranks.pods)
    if algorithm == DIRECT:
        return Steps(network=min(ranks.pods - 1, 1), inside=1)
    if algorithm == NVLS:
        return Steps(nvls=1)
    if algorithm == NVLS_TREE:
        return Steps(network=2 * depth, nvls=1)
    if algorithm == TREE:
        return Steps(network=2 * depth, inside=2 * (ranks.per_pod - 1))
    if algorithm == COLLNET:
        return Steps(network=2, inside=2 * (ranks.per_pod - 1))
    if algorithm == PAT:
        return Steps(network=rounds * depth)
    return Steps(network=rounds * (ranks.pods - 1), inside=rounds * (ranks.total - ranks.pods))
