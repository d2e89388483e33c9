"""What scenarios about faults rest on: each part can be taken away and comes back, with pods running."""

from __future__ import annotations

import pytest

from tests.cluster.kubebed import Cluster, Kubectl, KubectlError
from tests.cluster.kubebed.manifests import pod
from tests.cluster.kubebed.processes import state


@pytest.fixture
def running(bed: Cluster, kubectl: Kubectl) -> str:
    """A pod on the first node, marked so that a second one of its name would be noticed; its UID."""
    kubectl.start(pod("steady", node=bed.nodes[0].name))
    kubectl.exec("steady", "touch", "/tmp/born")
    uid: str = kubectl.get("pod/steady")["metadata"]["uid"]
    return uid


def test_a_pod_outlives_a_restart_of_containerd(bed: Cluster, kubectl: Kubectl, running: str) -> None:
    before = bed.nodes[0].pod_processes(running)
    bed.restart_containerd(bed.nodes[0])
    kubectl.wait("pod/steady", "condition=Ready")
    assert bed.nodes[0].pod_processes(running) == before != []


def test_a_pod_outlives_a_restart_of_the_kubelet(bed: Cluster, kubectl: Kubectl, running: str) -> None:
    bed.restart_kubelet(bed.nodes[0])
    kubectl.start(pod("later", node=bed.nodes[0].name))
    assert kubectl.exec("steady", "ls", "/tmp").split() == ["born"]


def test_a_pod_outlives_an_absence_of_the_api_server(bed: Cluster, kubectl: Kubectl, running: str) -> None:
    before = bed.nodes[0].pod_processes(running)
    with bed.api_server_away():
        with pytest.raises(KubectlError):
            kubectl.run("get", "--raw=/readyz", timeout=5)
        assert bed.nodes[0].pod_processes(running) == before
    assert kubectl.exec("steady", "ls", "/tmp").split() == ["born"]


def test_the_processes_of_a_pod_can_be_paused_and_woken(bed: Cluster, kubectl: Kubectl, running: str) -> None:
    with bed.nodes[0].paused(running) as processes:
        assert {state(process) for process in processes} == {"T"}
    assert "T" not in {state(process) for process in processes}


def test_a_force_deleted_pod_is_gone_from_the_api_at_once(bed: Cluster, kubectl: Kubectl, running: str) -> None:
    kubectl.delete("pod/steady", grace=0)
    assert kubectl.items("pods") == []
