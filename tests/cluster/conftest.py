"""Fixtures of the end-to-end scenarios: a cluster for the whole run, a namespace for each test, and a closing table.

The cluster is, in this order: the one of KUBECONFIG, if that is set; a bed that `make cluster` left up; a bed of
this run's own, taken down at its end. Only a bed gives access to nodes; scenarios that need it ask for `bed` and
are skipped without.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster import release
from tests.cluster.kubebed import BedError, Cluster, ExistingCluster, Kubectl, KubectlError, Options
from tests.cluster.kubebed.layout import Layout
from tests.cluster.kubebed.startup import Samples
from tests.cluster.published import Published, publish

SAMPLES = pytest.StashKey[Samples]()
RESULTS = pytest.StashKey[dict[str, tuple[str, float, str]]]()
LONGEST_SCENARIO = 300
"""Seconds, with the fixtures it is the first to use. What waits in it has limits of its own, and says what it waited
for: those must come first."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster | ExistingCluster]:
    if given := os.environ.get("KUBECONFIG"):
        yield ExistingCluster(Path(given))
        return
    layout, options = Layout.from_environment(), Options.from_environment()
    if left_up := _left_up(layout, options):
        yield left_up
        return
    own = Cluster(layout, options)
    own.up()
    yield own
    own.down()


@pytest.fixture(scope="session")
def bed(cluster: Cluster | ExistingCluster) -> Cluster:
    """The cluster with its nodes in reach."""
    if isinstance(cluster, ExistingCluster):
        pytest.skip("needs the nodes of a bed; KUBECONFIG names a cluster whose nodes are out of reach")
    return cluster


@pytest.fixture(scope="session")
def driver(bed: Cluster) -> Iterator[Cluster]:
    """Our driver on every node, all NICs published; some modules have a `driver` of their own with other values."""
    for node in bed.nodes:
        bed.replug(node, bed.nics(node))
    release.install(bed)
    for node in bed.nodes:
        release.wait_published(bed.kubectl, node.name, *(nic.name for nic in bed.nics(node)))
    yield bed
    release.remove(bed)


@pytest.fixture(scope="session")
def published(bed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A release of this tree in a registry that the nodes reach."""
    return publish(bed, tmp_path_factory.mktemp("release"))


@pytest.fixture
def kubectl(cluster: Cluster | ExistingCluster, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own. Its pods are gone when the test is over, so its devices are free."""
    name = _namespace_name(request.node.name)
    everywhere = cluster.kubectl
    everywhere.run("create", "namespace", name)
    inside = everywhere.in_namespace(name)
    inside.wait("serviceaccount/default", "create")
    yield inside
    _explain_failure(request.node, inside)
    inside.run("delete", "pods", "--all", "--grace-period=1", "--wait=true")
    everywhere.run("delete", "namespace", name, "--wait=false")


@pytest.fixture
def samples(request: pytest.FixtureRequest) -> Samples:
    """Measured seconds; their percentiles stand below the closing table."""
    return request.config.stash[SAMPLES]


def _left_up(layout: Layout, options: Options) -> Cluster | None:
    """A bed that a developer keeps up; anything else is cleared by the next `up`."""
    try:
        found = Cluster.running(layout)
    except BedError:
        return None
    if not found.kept():
        return None
    if not found.healthy():
        raise BedError(f"{layout.name} was left up and is not whole any more: see `kubebed status`, then take it down")
    if found.options != options:
        raise BedError(f"{layout.name} is up with {found.options}, this run wants {options}: take it down or use BED=1")
    return found


def _namespace_name(test: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", test.removeprefix("test_").lower()).strip("-")
    return f"{words[:40].strip('-')}-{time.time_ns() // 1_000_000 % 10_000_000}"


def _explain_failure(item: pytest.Item, kubectl: Kubectl) -> None:
    """What the namespace looked like, in the failure's report."""
    if item.stash[RESULTS].get(item.nodeid, ("",))[0] != "failed":
        return
    for what in ("pods,resourceclaims -o wide", "events --sort-by=.lastTimestamp"):
        try:
            text = kubectl.run("get", *what.split())
        except KubectlError as problem:
            text = str(problem)
        item.add_report_section("teardown", f"kubectl get {what}", text)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that share the driver come last, so that it is installed once and in nobody's way.

    First come those that publish without a driver, in a kubelet's name: it deletes what is published half a minute
    after a driver has left its node.
    """
    items.sort(key=lambda item: (_shares_the_driver(item), not _plays_the_driver(item)))
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_SCENARIO))


def _shares_the_driver(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "driver" in item.fixturenames and not hasattr(item.module, "driver")


def _plays_the_driver(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "rights" in item.fixturenames


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = {}
    config.stash[SAMPLES] = Samples()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    results = item.config.stash[RESULTS]
    item.stash[RESULTS] = results
    result, seconds, reason = results.get(item.nodeid, ("passed", 0.0, ""))
    if report.outcome != "passed":
        result = report.outcome
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
    # Bringing the cluster up is nobody's scenario: setup counts only for what it says when it fails.
    spent = report.duration if report.when == "call" else 0.0
    results[item.nodeid] = (result, seconds + spent, reason)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    results = config.stash[RESULTS]
    if not results:
        return
    terminalreporter.section("scenarios")
    width = max(len(_scenario(name)) for name in results)
    for name, (result, seconds, reason) in results.items():
        terminalreporter.write_line(f"{_scenario(name):{width}}  {result:8} {seconds:7.2f} s  {reason}".rstrip())
    outcomes = [result for result, _, _ in results.values()]
    counted = (f"{outcomes.count(word)} {word}" for word in ("passed", "failed", "skipped"))
    terminalreporter.write_line(", ".join(counted))
    for line in config.stash[SAMPLES].lines():
        terminalreporter.write_line(line)


def _scenario(nodeid: str) -> str:
    return nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
