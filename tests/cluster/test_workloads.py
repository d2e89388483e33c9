"""Jobs that know nothing of this driver, over the NICs they claimed: twice in a row, counted by the kernel.

MPIJobs by the MPI Operator, StatefulSets as they are; the manifests are those of `examples/`. GPUs are a stand-in
driver's where a claim asks for them; other scenarios ask for the NICs alone.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import pytest
from click.testing import CliRunner

from dranet.advise.report.log_reader import read_log
from dranet.advise.report.runs import Run
from dranet.cli.explain import explain
from dranet.cli.report import report
from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.documents import SPREAD, SYSFS, WORKER, Machines, nics_of, workers, worst_pair
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.workloads.jobs import EXAMPLES, MPIRUN, example, mpi_job, nics_of_the_bed, program, stateful_set
from tests.cluster.workloads.ledger import Ledger
from tests.cluster.workloads.ray_jobs import ray_cluster, ray_program
from tests.cluster.workloads.ready import ready_for_mpi, ready_for_ray
from tests.cluster.workloads.traffic import Meter, Port, Traffic, claimed_nics, elsewhere

# Images are built and loaded on first use; the one with Ray takes six minutes and another two.
pytestmark = pytest.mark.timeout(900)

Manifest = dict[str, Any]
SWEEP = "1024 8388608 10"
LONG_SWEEP = "1024 8388608 100"
"""Some ten seconds: long enough to be caught in the middle."""
RAY_SWEEP = "1048576 33554432 10"
"""More bytes in less time: Ray's own messages go through the pod network for as long as it runs, some 20 KB/s."""


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    """Driver, names and operator; images with everything the jobs need. A bed that stays up keeps them."""
    ready_for_mpi(bed)
    release.install(bed)
    yield bed
    if not bed.kept():
        release.remove(bed)


@pytest.fixture(scope="module")
def ledger(pytestconfig: pytest.Config) -> Ledger:
    book = Ledger()
    pytestconfig.pluginmanager.register(book)
    return book


@pytest.fixture
def machines(driver: Cluster, request: pytest.FixtureRequest) -> Iterator[Machines]:
    """The nodes as machines with GPUs, which a stand-in driver serves."""
    release.install(driver, **SYSFS)
    dressed = Machines(driver, request.param)
    dressed.ready()
    yield dressed
    dressed.remove()
    release.install(driver)


@dataclass(frozen=True)
class Workers:
    """The pods of a StatefulSet, its service, and the NICs each pod holds."""

    name: str
    service: str
    nics: dict[str, list[Port]]

    @property
    def rings(self) -> list[list[str]]:
        """Each rail of a bed is a wire of its own: workers whose NICs are on the same rails form a ring."""
        found: dict[tuple[str, ...], list[str]] = {}
        for worker in sorted(self.nics):
            found.setdefault(tuple(sorted(nic for _, nic in self.nics[worker])), []).append(worker)
        return list(found.values())


def start_mpi_job(kubectl: Kubectl, sweep: str = SWEEP) -> Manifest:
    """Document 3: its class, template and job, with a NIC of the bed for `gpu2rdma0`."""
    device_class = example("3-gke-mpi/claims.yaml", "DeviceClass")
    device_class["spec"]["selectors"] = device_class["spec"]["selectors"][:1]  # NICs of a bed have no RDMA.
    template = nics_of_the_bed(example("3-gke-mpi/claims.yaml", "ResourceClaimTemplate"), ["nic2"])
    job = mpi_job(example("3-gke-mpi/mpijob.yaml", "MPIJob"), kubectl.namespace, sweep)
    kubectl.apply(device_class, template, program(), job)
    return job


def start_documents_job(
    kubectl: Kubectl, folder: str, template: str = "", claims: str = "claims.yaml", links: str = ""
) -> str:
    """An example as it stands, GPUs and all, its workers on different nodes; the name of the job."""
    job = mpi_job(example(f"{folder}/mpijob.yaml", "MPIJob"), kubectl.namespace, SWEEP, links)
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    worker["metadata"] = {"labels": WORKER}
    worker["spec"]["topologySpreadConstraints"] = [SPREAD]
    if template:
        worker["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = template
    kubectl.apply(EXAMPLES / folder / "claims.yaml", EXAMPLES / folder / claims, program(), job)
    return str(job["metadata"]["name"])


def launchers(kubectl: Kubectl, job: str) -> list[str]:
    """Pods of the launcher in the order they were made; a retry is another pod."""
    label = f"training.kubeflow.org/job-name={job},training.kubeflow.org/job-role=launcher"
    pods = kubectl.items("pods", "-l", label)
    return [pod["metadata"]["name"] for pod in sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])]


def one_run(text: str) -> Run:
    found = read_log(text)
    assert found.warnings == ()
    (run,) = found.runs
    return run


def measured(meter: Meter, kubectl: Kubectl, nics: dict[str, list[Port]]) -> Traffic:
    return meter.read(kubectl, nics, [nic for held in nics.values() for nic in held])


def gone(kubectl: Kubectl, job: str) -> None:
    kubectl.delete(f"mpijob/{job}")
    kubectl.run("wait", "pods,resourceclaims", "--all", "--for=delete", "--timeout=60s")


def test_an_mpijob_runs_twice_in_a_row_over_the_same_renamed_nics(
    driver: Cluster, kubectl: Kubectl, ledger: Ledger
) -> None:
    used = []
    for turn in ("first", "second"):
        meter, started = Meter(driver), time.monotonic()
        name = start_mpi_job(kubectl)["metadata"]["name"]
        kubectl.wait(f"mpijob/{name}", "condition=Succeeded", 120)
        seconds = time.monotonic() - started
        (launcher,), nics = launchers(kubectl, name), claimed_nics(kubectl)
        run = one_run(kubectl.logs(launcher))
        traffic = measured(meter, kubectl, nics)
        ledger.enter(f"document 3, MPIJob, {turn} run", traffic, f"{run.average:.2f} GB/s on average", seconds)
        assert (run.collective, run.world, run.wrong, run.rows[0].size) == ("all_reduce", 2, 0, 1024)
        assert set(run.hosts) == {f"{name}-worker-0", f"{name}-worker-1"}
        used.append(sorted(nic for held in nics.values() for nic in held))
        gone(kubectl, name)
    assert used == [[("n1", "nic2"), ("n2", "nic2")]] * 2


def test_a_worker_killed_in_mid_job_comes_back_to_its_nic_and_the_retry_succeeds(
    driver: Cluster, kubectl: Kubectl, ledger: Ledger
) -> None:
    meter, started = Meter(driver), time.monotonic()
    name = start_mpi_job(kubectl, LONG_SWEEP)["metadata"]["name"]
    (launcher,) = wait_until(lambda: launchers(kubectl, name), "the launcher")
    kubectl.wait(f"pod/{launcher}", "condition=Ready")
    wait_until(lambda: "float" in kubectl.logs(launcher), "the first row")
    before = claimed_nics(kubectl)
    # A launcher that fails is started again in its pod, perhaps more than once: listen to the first while it lasts.
    with subprocess.Popen(kubectl.command("logs", "-f", launcher), stdout=subprocess.PIPE, text=True) as first:
        kubectl.delete(f"pod/{name}-worker-1", grace=0, wait=False)
        said, _ = first.communicate(timeout=60)
    assert "incomplete" in run_command(report, "-", text=said)
    # A claim refused while its NIC is still held is tried again by the kubelet after a minute.
    kubectl.wait(f"mpijob/{name}", "condition=Succeeded", 180)
    run, nics = one_run(kubectl.logs(launcher)), claimed_nics(kubectl)
    traffic = measured(meter, kubectl, nics)
    ledger.enter("document 3, MPIJob, worker killed", traffic, "finished on retry", time.monotonic() - started)
    assert (run.wrong, run.printed_average is not None) == (0, True)
    assert nics == before
    gone(kubectl, name)


@pytest.mark.parametrize("machines", ["a3-ultragpu-8g"], indirect=True)
def test_document_3_runs_as_written_with_a_gpu_and_a_nic_below_one_root(
    machines: Machines, kubectl: Kubectl, ledger: Ledger
) -> None:
    bed, used = machines.bed, []
    for turn in ("first", "second"):
        meter, started = Meter(bed), time.monotonic()
        name = start_documents_job(kubectl, "3-gke-mpi")
        kubectl.wait(f"mpijob/{name}", "condition=Succeeded", 120)
        seconds = time.monotonic() - started
        found = workers(bed, kubectl)
        nics = {one.name: [(one.node, nic.name) for nic in nics_of(machines.shape, bed, one)] for one in found}
        traffic = measured(meter, kubectl, nics)
        (launcher,) = launchers(kubectl, name)
        run = one_run(kubectl.logs(launcher))
        ledger.enter(f"document 3, MPIJob with GPUs, {turn}", traffic, f"{run.average:.2f} GB/s on average", seconds)
        assert [worst_pair(machines.shape, one) for one in found] == ["PIX", "PIX"]
        used.append(sorted(nic for held in nics.values() for nic in held))
        gone(kubectl, name)
    assert used[0] == used[1]


MEASURED_ON_GB300 = {"1nic-aligned": 56, "2nic-aligned": 112, "1nic-unaligned": 25}
"""GB/s, as document 4 has them."""


@pytest.mark.parametrize("machines", ["nd-gb300-v6"], indirect=True)
def test_document_4s_templates_run_and_the_report_tells_the_unaligned_one(machines: Machines, kubectl: Kubectl) -> None:
    """These NICs have no interface, so the bytes can only go through the pod network; the report says so."""
    found = {}
    for template in ("1nic-aligned", "2nic-aligned", "1nic-unaligned"):
        file = "unaligned.yaml" if template == "1nic-unaligned" else "claims.yaml"
        name = start_documents_job(kubectl, "4-aks-gb300", template, file, links="eth0")
        kubectl.wait(f"mpijob/{name}", "condition=Succeeded", 120)
        claims = [claim["metadata"]["name"] for claim in kubectl.items("resourceclaims")]
        (launcher,) = launchers(kubectl, name)
        found[template] = reported(kubectl, kubectl.logs(launcher), claims)
        gone(kubectl, name)
    expected = {template: run["expected"]["gbytes_per_second"] for template, run in found.items()}
    assert expected == pytest.approx(MEASURED_ON_GB300, rel=0.05)
    far = [template for template, run in found.items() if any("is SYS" in reason for reason in run["reasons"])]
    assert far == ["1nic-unaligned"]
    assert all(any("went through eth0" in reason for reason in run["reasons"]) for run in found.values())


def reported(kubectl: Kubectl, text: str, claims: list[str]) -> Manifest:
    """What `dranet report` says of a log, with slices and claims of the live cluster."""
    named = [word for claim in claims for word in ("--claim", f"{kubectl.namespace}/{claim}")]
    said = run_command(report, "-", "-o", "json", "--kubeconfig", str(kubectl.kubeconfig), *named, text=text)
    (run,) = json.loads(said)["runs"]
    assert isinstance(run, dict)
    return run


def run_command(command: click.Command, *words: str, text: str | None = None) -> str:
    """What one of our commands says."""
    done = CliRunner().invoke(command, list(words), input=text)
    assert done.exit_code == 0, done.output
    return done.output


def explained(kubectl: Kubectl, claim: str) -> str:
    """What `dranet explain` says of a claim, now."""
    return run_command(explain, "--claim", f"{kubectl.namespace}/{claim}", "--kubeconfig", str(kubectl.kubeconfig))


def start_workers(kubectl: Kubectl, folder: str, template: str, manifest: str, links: list[str]) -> Workers:
    """A StatefulSet of an example, ready, with NICs of these names."""
    kubectl.apply(example(f"{folder}/claims.yaml", "DeviceClass"), program())
    kubectl.apply(nics_of_the_bed(example(f"{folder}/claims.yaml", "ResourceClaimTemplate", template), links))
    service, group = stateful_set(f"{folder}/{manifest}", template)
    kubectl.apply(service, group)
    return all_ready(kubectl, group["metadata"]["name"], service["metadata"]["name"])


def all_ready(kubectl: Kubectl, name: str, service: str) -> Workers:
    wanted = kubectl.get(f"statefulset/{name}")["spec"]["replicas"]
    kubectl.wait(f"statefulset/{name}", f"jsonpath={{.status.readyReplicas}}={wanted}", 90)
    return Workers(name, service, claimed_nics(kubectl))


def let_in(kubectl: Kubectl, workers: list[str]) -> None:
    """The first worker may start programs on the others, by ssh, as images for MPI are prepared to."""
    first, *others = workers
    make = "test -f /root/.ssh/id_ed25519 || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519"
    key = kubectl.exec(first, "sh", "-c", f"{make}; cat /root/.ssh/id_ed25519.pub").strip()
    for worker in others:
        kubectl.exec(worker, "sh", "-c", f"mkdir -p /root/.ssh && echo '{key}' > /root/.ssh/authorized_keys")


def all_reduce(kubectl: Kubectl, workers: Workers) -> list[Run]:
    """In every ring, from its first worker, through all its NICs."""
    runs = []
    for ring in workers.rings:
        let_in(kubectl, ring)
        hosts = [f"{worker}.{workers.service}" for worker in ring]
        wait = "".join(f"until getent hosts {host} >&2; do sleep 0.2; done; " for host in hosts)
        links = ",".join(name for _, name in workers.nics[ring[0]])
        options = f"-mca orte_keep_fqdn_hostnames t -mca btl_tcp_if_include {links}"
        start = f"{MPIRUN} -H {','.join(hosts)} {options} python3 /job/all_reduce.py {SWEEP}"
        runs.append(one_run(kubectl.exec(ring[0], "sh", "-c", wait + start)))
    return runs


@pytest.mark.parametrize(
    ("folder", "template", "manifest", "replicas", "nics"),
    [
        ("1-gke-rdma", "8-gpu-8-nic", "workers-8x8.yaml", 2, 8),
        ("1-gke-rdma", "4-gpu-4-nic", "workers-4x4.yaml", 4, 4),
        ("2-gke-nvidia-dra", "2-gpu-2-nic", "workers.yaml", 2, 2),
    ],
)
def test_every_nic_of_every_worker_of_a_statefulset_carries_traffic(
    driver: Cluster,
    kubectl: Kubectl,
    ledger: Ledger,
    folder: str,
    template: str,
    manifest: str,
    replicas: int,
    nics: int,
) -> None:
    meter, started = Meter(driver), time.monotonic()
    links = [f"nic{n}" for n in range(nics * replicas // len(driver.nodes))]
    group = start_workers(kubectl, folder, template, manifest, links)
    assert [len(own) for own in group.nics.values()] == [nics] * replicas
    assert all(len(ring) == 2 for ring in group.rings), group.rings
    runs = all_reduce(kubectl, group)
    traffic = measured(meter, kubectl, group.nics)
    average = sum(run.average or 0 for run in runs) / len(runs)
    title = f"document {folder[0]}, StatefulSet, {replicas} workers x {nics} NICs"
    ledger.enter(title, traffic, f"{average:.2f} GB/s on average", time.monotonic() - started)
    assert [run.wrong for run in runs] == [0] * len(group.rings)


def test_a_drained_node_gets_its_nics_back_and_the_worker_finds_them_again(
    driver: Cluster, kubectl: Kubectl, ledger: Ledger
) -> None:
    links = ["nic0", "nic1"]
    group = start_workers(kubectl, "2-gke-nvidia-dra", "2-gpu-2-nic", "workers.yaml", links)
    meter, started, node = Meter(driver), time.monotonic(), driver.nodes[1]
    kubectl.run("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--grace-period=1")
    try:
        wait_until(lambda: set(links) <= set(node.links()), "the NICs to return to the host")
        waiting = explained(kubectl, wait_until(lambda: unallocated(kubectl), "the worker to wait for NICs"))
        assert f"{node.name}: cordoned" in waiting
        assert "in use: held by another claim" in waiting
    finally:
        kubectl.run("uncordon", node.name)
    again = all_ready(kubectl, group.name, group.service)
    (run,) = all_reduce(kubectl, again)
    traffic = measured(meter, kubectl, again.nics)
    ledger.enter("document 2, StatefulSet, node drained", traffic, "works again", time.monotonic() - started)
    assert (again.nics, run.wrong) == (group.nics, 0)


def unallocated(kubectl: Kubectl) -> str:
    """The name of a claim that waits; empty while there is none."""
    claims = kubectl.items("resourceclaims")
    return next((one["metadata"]["name"] for one in claims if not one.get("status", {}).get("allocation")), "")


def test_a_claim_deleted_under_a_job_stays_until_its_pod_is_gone(
    driver: Cluster, kubectl: Kubectl, ledger: Ledger
) -> None:
    group = start_workers(kubectl, "2-gke-nvidia-dra", "2-gpu-2-nic", "workers.yaml", ["nic0", "nic1"])
    meter, started = Meter(driver), time.monotonic()
    names = [claim["metadata"]["name"] for claim in kubectl.items("resourceclaims")]
    kubectl.delete(*(f"resourceclaim/{name}" for name in names), wait=False)
    for name in names:
        assert "it keeps its devices until nccl" in explained(kubectl, name)
    (run,) = all_reduce(kubectl, group)
    traffic = measured(meter, kubectl, group.nics)
    ledger.enter("document 2, StatefulSet, claims deleted", traffic, "kept its NICs", time.monotonic() - started)
    assert run.wrong == 0
    kubectl.delete(f"statefulset/{group.name}")
    for name in names:
        kubectl.wait(f"resourceclaim/{name}", "delete")
    for node in driver.nodes:
        assert {"nic0", "nic1"} <= set(node.links())


@pytest.fixture(scope="module")
def ray(driver: Cluster) -> Cluster:
    ready_for_ray(driver)
    return driver


def ray_workers(kubectl: Kubectl, count: int) -> list[str]:
    """The names of the worker pods, when there are this many and all are ready."""
    kubectl.wait("raycluster/a4-ray-cluster", f"jsonpath={{.status.readyWorkerReplicas}}={count}", 180)
    pods = kubectl.items("pods", "-l", "ray.io/node-type=worker")
    return sorted(pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"])


def submit(kubectl: Kubectl, group: str) -> Run:
    """The all-reduce as the document submits it, from the head."""
    (head,) = kubectl.items("pods", "-l", "ray.io/node-type=head")
    command = f"ray job submit --address http://127.0.0.1:8265 -- python3 /job/ray_all_reduce.py 2 {group} {RAY_SWEEP}"
    return one_run(kubectl.exec(head["metadata"]["name"], "sh", "-c", command))


def scale(kubectl: Kubectl, replicas: int) -> None:
    change = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}]
    kubectl.run("patch", "raycluster/a4-ray-cluster", "--type=json", "-p", json.dumps(change))


def test_a_raycluster_reduces_twice_and_again_after_its_workers_were_scaled_down_and_up(
    ray: Cluster, kubectl: Kubectl, ledger: Ledger
) -> None:
    started = time.monotonic()
    template = example("5-gke-ray/claims.yaml", "ResourceClaimTemplate")
    kubectl.apply(example("5-gke-ray/claims.yaml", "DeviceClass"), ray_program(), ray_cluster())
    kubectl.apply(nics_of_the_bed(template, [f"nic{n}" for n in range(8)]))
    for turn in ("first", "second", "scaled down and up"):
        if turn == "scaled down and up":
            scale(kubectl, 0)
            kubectl.run("wait", "pods", "-l", "ray.io/node-type=worker", "--for=delete", "--timeout=60s")
            scale(kubectl, 2)
        pods = ray_workers(kubectl, 2)
        before, meter = elsewhere(kubectl, pods), Meter(ray)
        nics = claimed_nics(kubectl)
        assert sorted(len(nics[pod]) for pod in pods) == [8, 8]
        run = submit(kubectl, turn.replace(" ", "-"))
        traffic = measured(meter, kubectl, {pod: nics[pod] for pod in pods})
        traffic = Traffic(traffic.by_nic, traffic.elsewhere - before)
        ledger.enter(f"document 5, RayCluster, {turn}", traffic, f"{run.average:.2f} GB/s", time.monotonic() - started)
        assert (run.world, run.wrong, set(run.hosts)) == (2, 0, set(pods))
        started = time.monotonic()
    kubectl.delete("raycluster/a4-ray-cluster")
