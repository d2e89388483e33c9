"""Rails that route, in a real cluster: names, tables and rules by rail, whichever NICs the scheduler picks.

The fabric's bridges get an address each and forward, as leaf switches with a spine do.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator

import pytest

from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl, KubectlError
from tests.cluster.kubebed.manifests import RESOURCE_API, Manifest, claim, opaque, pod, request
from tests.cluster.kubebed.nics import in_namespace

RAILS = range(8)
CLASS = "rails"
PARAMETERS = {
    "perDevice": [
        {
            "interface": {"name": "net{rail}", "arpIgnore": 1, "arpAnnounce": 2, "rpFilter": 2},
            "railRouting": {"gateway": "192.168.{rail}.254"},
        }
    ],
    "rails": {str(rail): [f"192.168.{rail}.0/24"] for rail in RAILS},
}


def rail_class() -> Manifest:
    expression = f'device.driver == "dra.net" && {release.NIC}'
    spec = {"selectors": [{"cel": {"expression": expression}}], "config": [opaque("dra.net", PARAMETERS)]}
    return {"apiVersion": RESOURCE_API, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    for node in bed.nodes:
        bed.replug(node, bed.nics(node))
    holder = bed.processes.find("fabric").pid
    for rail in RAILS:
        in_namespace(holder, f"addr add 192.168.{rail}.254/24 dev rail{rail}")
    enter = ["nsenter", "-t", str(holder), "-n", "sysctl", "-qw"]
    subprocess.run([*enter, "net.ipv4.ip_forward=1"], check=True)
    release.install(bed, args={"railSource": r"interface:nic(\d+)"})
    for node in bed.nodes:
        release.wait_published(bed.kubectl, node.name, *(nic.name for nic in bed.nics(node)))
    bed.kubectl.apply(rail_class())
    yield bed
    bed.kubectl.delete(f"deviceclass/{CLASS}")
    release.remove(bed)
    subprocess.run([*enter, "net.ipv4.ip_forward=0"], check=True)
    for rail in RAILS:
        in_namespace(holder, f"addr del 192.168.{rail}.254/24 dev rail{rail}")


def selector(rails: list[int]) -> str:
    return " || ".join(f'device.attributes["dra.net"].rail == "{rail}"' for rail in rails)


def test_names_and_tables_follow_the_rail_and_every_pair_is_reached(driver: Cluster, kubectl: Kubectl) -> None:
    names, chosen = [node.name for node in driver.nodes[:2]], random.Random(41)
    for turn in range(4):
        rails = {name: sorted(chosen.sample(RAILS, 4)) for name in names}
        for number, name in enumerate(names):
            asked = request("nics", CLASS, selector=selector(rails[name]), count=4)
            kubectl.apply(claim(f"c{turn}-{number}", asked))
            kubectl.start(pod(f"p{turn}-{number}", claims={"nics": f"c{turn}-{number}"}, node=name))
            shown = kubectl.exec(f"p{turn}-{number}", "ip", "rule")
            for rail in rails[name]:
                assert f"from 192.168.{rail}.{number + 1} lookup {100 + rail}" in shown
        for own in rails[names[0]]:
            for peer in rails[names[1]]:
                target, source = f"192.168.{peer}.2", f"192.168.{own}.1"
                answer = kubectl.exec(f"p{turn}-0", "ping", "-c1", "-W10", "-I", source, target)
                assert "1 packets received" in answer, (source, target)
        kubectl.delete(*(f"pod/p{turn}-{number}" for number in range(2)))
        kubectl.delete(*(f"resourceclaim/c{turn}-{number}" for number in range(2)))


@pytest.mark.parametrize(
    "parameters",
    [
        {"vf": {"trust": True}},
        {"perDevice": [{"vf": {"trust": True}}]},
        {"interface": {"disableEbpfPrograms": True}},
        {"perDevice": [{"interface": {"mtu": 9000}}, {"interface": {"disableEbpfPrograms": True}}]},
    ],
)
def test_parameters_of_administrators_are_refused_by_the_api_server(
    driver: Cluster, kubectl: Kubectl, parameters: Manifest
) -> None:
    with pytest.raises(KubectlError, match="only a DeviceClass or a profile may set this"):
        kubectl.apply(claim("c", request("nic", CLASS), config=[opaque("dra.net", parameters)]))
    kubectl.apply(claim("c", request("nic", CLASS), config=[opaque("dra.net", {"interface": {"mtu": 1400}})]))
