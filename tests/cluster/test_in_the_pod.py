"""What containers get with their NICs, from a real runtime: metadata that Go's own library reads, and settings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dranet.core import podinfo
from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.build import GoProgram, binary
from tests.cluster.kubebed.manifests import claim, claim_template, opaque, pod, request
from tests.cluster.kubebed.parts import METADATA_READERS

BETA, ALPHA = "metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"


def nic(name: str) -> str:
    return f'device.attributes["dra.net"].ifName == "{name}"'


def asking(request_name: str, link: str, *libraries: str, **interface: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A request for one NIC, and what is said to the driver about it."""
    said = {"environment": list(libraries), "interface": {"name": request_name, **interface}}
    return request(request_name, release.CLASS, selector=nic(link)), opaque("dra.net", said, request_name)


def bring(kubectl: Kubectl, program: Path, name: str, there: str) -> None:
    """A program into the container, whose image has nothing but busybox."""
    copy = kubectl.command("exec", "-i", name, "--", "sh", "-c", f"cat > {there} && chmod +x {there}")
    with program.open("rb") as file:
        subprocess.run(copy, stdin=file, check=True, timeout=60)


def read_by_go(kubectl: Kubectl, name: str, *words: str) -> dict[str, Any]:
    """What the library understands, inside the container and at the path it knows itself."""
    found: dict[str, Any] = json.loads(kubectl.exec(name, "/tmp/reader", *words))
    return found


def lines(kubectl: Kubectl, name: str, path: str) -> list[str]:
    return kubectl.exec(name, "cat", path).splitlines()


def variables(kubectl: Kubectl, name: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in kubectl.exec(name, "env").splitlines() if "=" in line)


@pytest.mark.parametrize("reader", METADATA_READERS, ids=lambda reader: reader.version)
def test_go_s_library_reads_every_version_it_knows_of_both_kinds_of_claims(
    driver: Cluster, kubectl: Kubectl, reader: GoProgram
) -> None:
    node = driver.nodes[0].name
    address = {"addresses": ["10.77.0.1/24"]}
    own, said = asking("first", "nic0", **address)
    made, said_too = asking("second", "nic1")
    kubectl.apply(claim("own", own, config=[said]), claim_template("made", made, config=[said_too]))
    kubectl.start(pod("reads", claims={"a": "own"}, templates={"b": "made"}, node=node))
    known = [BETA, ALPHA] if reader.tags else [ALPHA]
    bring(kubectl, binary(reader), "reads", "/tmp/reader")
    by_name = read_by_go(kubectl, "reads", "resourceclaims", "own", "first")
    by_template = read_by_go(kubectl, "reads", "resourceclaimtemplates", "b", "second")
    for found in (by_name, by_template):
        assert found["versions"] == known
        assert (found["devicesByDriver"], found["devicesByRequest"]) == (1, 1)
        (device,) = found["decoded"][0]["requests"][0]["devices"]
        assert all(one["requests"] == found["decoded"][0]["requests"] for one in found["decoded"])
        assert (device["driver"], device["pool"]) == ("dra.net", node)
    (device,) = by_name["decoded"][0]["requests"][0]["devices"]
    assert device["networkData"]["interfaceName"] == "first"
    assert device["networkData"]["ips"] == ["10.77.0.1/24"]
    assert by_template["decoded"][0]["podClaimName"] == "b"


def test_two_claims_of_one_pod_give_a_container_one_answer_for_the_nics_of_both(
    driver: Cluster, kubectl: Kubectl
) -> None:
    node = driver.nodes[0].name
    one, said = asking("net1", "nic0", "nccl", "mpi", "gloo", addresses=["10.78.0.1/24"])
    two, said_too = asking("net2", "nic1", "nccl", "gloo", addresses=["10.78.1.1/24"])
    kubectl.apply(claim("one", one, config=[said]), claim("two", two, config=[said_too]))
    kubectl.start(pod("job", claims={"a": "one", "b": "two"}, node=node))
    found = variables(kubectl, "job")
    assert (found["GLOO_SOCKET_IFNAME"], found["OMPI_MCA_btl_tcp_if_include"]) == ("net1,net2", "net1")
    assert "NCCL_SOCKET_IFNAME==net1,net2" in lines(kubectl, "job", "/etc/nccl.conf")
    assert not any(name.startswith("NCCL_") for name in found)
    assert lines(kubectl, "job", "/root/.openmpi/mca-params.conf") == ["btl_tcp_if_include = net1"]


def test_an_entrypoint_without_python_has_the_nics_as_variables(driver: Cluster, kubectl: Kubectl) -> None:
    one, said = asking("net1", "nic0", addresses=["10.80.0.1/24"])
    two, said_too = asking("net2", "nic1", addresses=["10.80.1.1/24"])
    kubectl.apply(claim("one", one, config=[said]), claim_template("two", two, config=[said_too]))
    kubectl.start(pod("script", claims={"a": "one"}, templates={"b": "two"}, node=driver.nodes[0].name))
    bring(kubectl, Path(podinfo.__file__).with_suffix(".sh"), "script", "/tmp/podinfo.sh")
    show = 'eval "$(sh /tmp/podinfo.sh)"; echo $DRANET_CARDS $DRANET_INTERFACES $DRANET_ADDRESSES'
    assert kubectl.exec("script", "sh", "-c", show).split() == ["2", "net1,net2", "10.80.0.1,10.80.1.1"]


def test_a_variable_that_the_manifest_sets_stays_as_it_is(driver: Cluster, kubectl: Kubectl) -> None:
    asked, said = asking("net1", "nic0", "gloo", addresses=["10.79.0.1/24"])
    manifest = pod("own-words", claims={"a": "one"}, node=driver.nodes[0].name)
    manifest["spec"]["containers"][0]["env"] = [{"name": "GLOO_SOCKET_IFNAME", "value": "eth0"}]
    kubectl.start(claim("one", asked, config=[said]), manifest)
    found = variables(kubectl, "own-words")
    assert (found["GLOO_SOCKET_IFNAME"], found["TP_SOCKET_IFNAME"]) == ("eth0", "net1")
