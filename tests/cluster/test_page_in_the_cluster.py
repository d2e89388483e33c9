"""The page inside the cluster, as the chart makes it: the API server's own accounts decide who sees it, and it writes
nothing. The way in is the documented one, ``kubectl port-forward``."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
import yaml

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl

PAGE = "dranet-page"
SHOWN = {"": ["nodes", "pods"], "resource.k8s.io": [
    "resourceslices", "resourceclaims", "resourceclaimtemplates", "deviceclasses",
]}  # fmt: skip


@pytest.fixture(scope="module")
def page(driver: Cluster) -> Iterator[str]:
    """The page's objects of the chart next to the driver, and its address on this machine."""
    rendered = driver.helm.template(release.CHART, {**release.VALUES, "page": {"enabled": True, "traffic": True}})
    items = [item for item in yaml.safe_load_all(rendered) if item and item["metadata"]["name"] == PAGE]
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"}
    assert {item["kind"] for item in items} == kinds
    system = driver.kubectl.in_namespace(release.SYSTEM)
    system.apply(*items)
    try:
        # Nothing reaches the page from outside its pod, so no probe says when it listens: it says so itself.
        system.wait(f"deployment/{PAGE}", "condition=Available")
        wait_until(lambda: "Serving the page at" in system.logs(f"deployment/{PAGE}"), "the page to listen")
        with subprocess.Popen(
            system.command("port-forward", f"deployment/{PAGE}", ":9178"), stdout=subprocess.PIPE, text=True
        ) as way:
            assert way.stdout is not None
            line = next(line for line in way.stdout if "127.0.0.1" in line)
            yield f"http://{line.split()[2]}"
            way.terminate()
    finally:
        system.remove(*items)


def ask(address: str, token: str = "", method: str = "GET") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, None, headers, method=method), timeout=30
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def stranger(kubectl: Kubectl) -> str:
    """A token of an account without rights."""
    kubectl.run("create", "serviceaccount", "stranger")
    return kubectl.run("create", "token", "stranger").strip()


@pytest.fixture
def viewer(kubectl: Kubectl) -> Iterator[str]:
    """A token of an account that may list what the page shows."""
    kubectl.run("create", "serviceaccount", "viewer")
    api, name = "rbac.authorization.k8s.io", f"{kubectl.namespace}-viewer"
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": ["list"]} for group, kinds in SHOWN.items()]
    common = {"apiVersion": f"{api}/v1", "metadata": {"name": name}}
    role = {**common, "kind": "ClusterRole", "rules": rules}
    account = {"kind": "ServiceAccount", "name": "viewer", "namespace": kubectl.namespace}
    reference = {"apiGroup": api, "kind": "ClusterRole", "name": name}
    binding = {**common, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [account]}
    kubectl.apply(role, binding)
    viewer = f"system:serviceaccount:{kubectl.namespace}:viewer"
    wait_until(lambda: kubectl.may(viewer, "list", "pods"), "the rights to be in force")
    yield kubectl.run("create", "token", "viewer").strip()
    kubectl.remove(role, binding)


def test_without_a_token_nothing_is_shown(page: str) -> None:
    status, said = ask(f"{page}/events")
    assert (status, "token" in said) == (401, True)


def test_a_token_the_cluster_does_not_know_is_refused(page: str) -> None:
    assert ask(f"{page}/events", "invented")[0] == 401


def test_an_account_without_rights_sees_what_it_may_not_list(page: str, stranger: str) -> None:
    status, said = ask(f"{page}/", stranger)
    assert status == 403
    assert "may not list resourceslices in all namespaces" in said


def test_who_may_list_all_it_shows_sees_the_machines_of_the_cluster(page: str, viewer: str, driver: Cluster) -> None:
    assert ask(f"{page}/", viewer)[0] == 200
    node = driver.node_names()[0]
    nics = {f"dra.net/{name}" for name in release.published(driver.kubectl, node)}
    wait_until(lambda: nics and nics <= shown(page, node, viewer), f"the page to show the NICs of {node}")


def shown(page: str, node: str, token: str) -> set[str]:
    """The devices of a node; none while the page has not read them yet."""
    status, said = ask(f"{page}/node?name={node}", token)
    return set(json.loads(said)["devices"]) if status == 200 else set()


def test_it_reaches_the_node_s_driver_which_has_virtual_nics_alone_here(
    page: str, viewer: str, driver: Cluster
) -> None:
    node = driver.node_names()[0]
    wait_until(lambda: shown(page, node, viewer), f"the page to show {node}")
    assert ask(f"{page}/traffic?node={node}", viewer) == (404, "the driver has no PCI or RDMA device with counters\n")


def test_it_writes_nothing_and_may_not(page: str, viewer: str, kubectl: Kubectl) -> None:
    assert ask(f"{page}/node?name=x", viewer, "DELETE")[0] in {404, 405}
    account = f"system:serviceaccount:{release.SYSTEM}:{PAGE}"
    assert kubectl.may(account, "list", "pods")
    for what in ("resourceslices", "pods"):
        for verb in ("create", "patch", "delete"):
            assert not kubectl.may(account, verb, what), f"{verb} {what}"
