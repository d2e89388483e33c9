"""Jobs that know nothing of this driver, over the cards they claimed: twice in a row, counted by the kernel.

MPIJobs by the MPI Operator, StatefulSets as they are; the manifests are those of `examples/`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import release
from kubebed import Cluster, Kubectl
from kubebed.debian import MPI, debian_image
from kubebed.operators import start_mpi_operator
from workloads.jobs import example, mpi_job, program, without_gpus
from workloads.ledger import Ledger
from workloads.traffic import Meter, claimed_cards

from dranet.reports.reading import read_log

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    """Driver, names and operator; images with everything the jobs need."""
    bed.start_dns()
    bed.load_image(debian_image(MPI))
    start_mpi_operator(bed)
    release.install(bed)
    yield bed
    release.remove(bed)


@pytest.fixture(scope="module")
def ledger(pytestconfig: pytest.Config) -> Ledger:
    book = Ledger()
    pytestconfig.pluginmanager.register(book)
    return book


def one_card_each(kubectl: Kubectl) -> Manifest:
    """Document 3: its class and its template, with a card of the bed for `gpu2rdma0`."""
    device_class = example("3-gke-mpi/claims.yaml", "DeviceClass")
    device_class["spec"]["selectors"] = device_class["spec"]["selectors"][:1]  # Cards of a bed have no RDMA.
    template = without_gpus(example("3-gke-mpi/claims.yaml", "ResourceClaimTemplate"))
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["selectors"] = [{"cel": {"expression": 'device.attributes["dra.net"].ifName == "nic2"'}}]
    kubectl.apply(device_class, template, program())
    return mpi_job(example("3-gke-mpi/mpijob.yaml", "MPIJob"), kubectl.namespace, "dranet0")


def finish(kubectl: Kubectl, job: Manifest) -> str:
    """Run a job to its end; the launcher's words."""
    name = job["metadata"]["name"]
    kubectl.apply(job)
    kubectl.wait(f"mpijob/{name}", "condition=Succeeded", 120)
    return kubectl.run(
        "logs", "-l", f"training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher", "--tail=-1"
    )


def test_an_mpijob_runs_twice_in_a_row_over_the_same_renamed_cards(
    driver: Cluster, kubectl: Kubectl, ledger: Ledger
) -> None:
    job = one_card_each(kubectl)
    name, used = job["metadata"]["name"], []
    for turn in ("first", "second"):
        meter, started = Meter(driver), time.monotonic()
        text = finish(kubectl, job)
        seconds = time.monotonic() - started
        cards = claimed_cards(kubectl)
        used.append(cards)
        traffic = meter.read(kubectl, cards, [card for held in cards.values() for card in held])
        (run,) = read_log(text).runs
        ledger.enter(f"document 3, MPIJob, {turn} run", traffic, f"{run.average:.2f} GB/s on average", seconds)
        assert (run.collective, run.world, run.wrong, run.rows[0].size) == ("all_reduce", 2, 0, 1024)
        assert set(run.hosts) == {f"{name}-worker-0", f"{name}-worker-1"}
        kubectl.delete(f"mpijob/{name}")
        kubectl.run("wait", "pods", "--all", "--for=delete", "--timeout=60s")
    assert used[0] == used[1]
    assert sorted(card for held in used[0].values() for card in held) == [("n1", "nic2"), ("n2", "nic2")]
