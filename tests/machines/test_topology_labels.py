"""Places of nodes, from every source's own labels."""

from __future__ import annotations

import pytest

from dranet.machines.topology_labels import labels_from_slices, nvlink_domain, topology_levels, topology_spreads


@pytest.mark.parametrize(
    "labels",
    [
        ["cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"],
        ["topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-3"],
        ["oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/rdma.local_block_id"],
        ["topology.kubernetes.io/zone", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"],
        ["fabric.topograph.run/tier-11", "fabric.topograph.run/tier-2", "fabric.topograph.run/tier-0"],
    ],
    ids=["GKE", "EKS", "OKE", "Topograph before 1.0", "Topograph, tier 0 nearest"],
)
def test_levels_come_from_the_outermost_inwards(labels: list[str]) -> None:
    assert topology_levels([dict.fromkeys(reversed(labels), "x")]) == labels


def test_a_place_that_is_not_known_is_no_place() -> None:
    island = "oci.oraclecloud.com/rdma.hpc_island_id"
    (one,) = topology_spreads([{island: "i1"}, {island: "no-imds-data"}, {}])
    assert (one.domains, one.unknown) == (1, 2)


def test_nodes_are_counted_by_place() -> None:
    (one,) = topology_spreads([{"fabric.topograph.run/tier-0": place} for place in ("a", "b", "a")])
    assert dict(one.pods) == {"a": 2, "b": 1}


def test_an_nvlink_domain_is_the_clique_of_the_node() -> None:
    assert nvlink_domain({"nvidia.com/gpu.clique": "uuid.7"}) == "uuid.7"
    assert nvlink_domain({"accelerator.topograph.run/domain": "d"}) == "d"
    assert nvlink_domain({}) is None


def test_what_slices_say_of_a_place_counts_as_a_label() -> None:
    device = {"name": "d", "attributes": {"gce.dra.net/block": {"string": "b1"}, "dra.net/ifName": {"string": "eth1"}}}
    found = labels_from_slices([{"spec": {"nodeName": "n", "devices": [device]}}])
    assert found == {"n": {"cloud.google.com/gce-topology-block": "b1"}}
