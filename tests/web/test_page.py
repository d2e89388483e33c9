"""In a real browser: what a person does with the page, by mouse and by keyboard, while the cluster lives."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from dranet.kubernetes.api import resources
from dranet.web import LiveSource, export

from .browser import Browser
from .lab import EXAMPLES, Lab

pytestmark = pytest.mark.xdist_group("browser")
GB300 = ("4-aks-gb300/claims.yaml", "4-aks-gb300/unaligned.yaml", "4-aks-gb300/mpijob.yaml")
WORKER = "default/nccl-test-dra-worker-0"
A4 = ("2-gke-nvidia-dra/claims.yaml", "2-gke-nvidia-dra/workers.yaml")


@pytest.fixture
def misplaced(cluster: Lab) -> Lab:
    """Two GB300 machines, on each a worker whose NIC is on the other side."""
    cluster.call(lambda: cluster.machines("nd-gb300-v6=2"))
    cluster.do(cluster.run(GB300, template="1nic-unaligned"))
    return cluster


def test_clicking_a_pod_shows_its_nics_its_distance_and_its_explanation(window: Browser, misplaced: Lab) -> None:
    window.open(misplaced.url)
    window.wait("state.holders.size === 2")
    window.click(f"[data-holder='{WORKER}']")
    window.wait("document.getElementById('explain')")
    said = window.text("#picked")
    for word in ("GPU0 gpu-0", "NIC2 mlx5_2", "0103:00:00.0", "✖ SYS", "through host memory", "about 25 GB/s"):
        assert word in said
    assert "better and free: gpu-0, pci-0101-00-00-0" in window.text("#explain")
    assert window.texts("#rows .device.chosen .name") == ["GPU0", "NIC2"]
    assert window.texts(".pair.chosen text") == ["✖ SYS"]


def test_a_misplaced_pod_is_obvious_without_any_click(window: Browser, misplaced: Lab) -> None:
    window.open(misplaced.url)
    window.wait("state.holders.size === 2")
    assert "✖ 2\npods misplaced" in window.text("#totals")
    assert "✖ SYS misplaced" in window.text("[data-node='nd-gb300-v6-0'] .head")
    assert "✖ SYS misplaced" in window.text(f"[data-holder='{WORKER}']")


def test_a_change_arrives_live_and_is_said_aloud(window: Browser, cluster: Lab) -> None:
    cluster.call(lambda: cluster.machines("nd-gb300-v6=2"))
    window.open(cluster.url)
    window.wait("state.nodes.size === 2")
    window.run("window.sameDocument = true")
    assert window.texts("#rows .device.in-use") == []
    cluster.do(cluster.run(GB300, template="1nic-aligned"))
    window.wait("document.querySelectorAll('#rows .device.in-use').length === 4 && !toDraw.size")
    assert "nccl-test-dra-worker-0" in window.text("#pods")
    # Both pods at once, or the last of the two: it depends on how the changes came.
    assert WORKER.removesuffix("0") in window.text("#status") and "● live" in window.text("#status")
    cluster.call(lambda: cluster.api.remove(resources.PODS, "nccl-test-dra-worker-0", "default"))
    for claim in cluster.api.objects(resources.RESOURCE_CLAIMS):
        name = claim["metadata"]["name"]
        cluster.call(partial(cluster.api.remove, resources.RESOURCE_CLAIMS, name, "default"))
    window.wait("document.querySelectorAll('#rows .device.in-use').length === 0")
    assert window.value("window.sameDocument") is True


def test_a_page_whose_api_server_is_gone_says_so_and_since_when(window: Browser, cluster: Lab) -> None:
    cluster.call(lambda: cluster.machines("nd-gb300-v6=2"))
    window.open(cluster.url)
    window.wait("state.nodes.size === 2 && state.waiting.length === 0")
    cluster.call(cluster.cut)
    window.wait("document.getElementById('status').innerText.includes('○ stale since ')")
    window.wait("document.getElementById('notice').innerText.includes('no answer')")
    cluster.line.cut = False
    window.wait("document.getElementById('status').innerText.includes('● live')")
    window.wait("document.getElementById('notice').hidden")


def test_a_nic_that_loses_its_link_becomes_tainted_before_the_eyes(window: Browser, misplaced: Lab) -> None:
    window.open(misplaced.url)
    window.wait("state.holders.size === 2")
    taints = [{"key": "dra.net/link-down", "effect": "NoSchedule"}]
    misplaced.call(lambda: misplaced.change_slice("nd-gb300-v6-1", "dra.net", lambda d: {**d, "taints": taints}))
    window.wait("document.querySelectorAll('#rows .device.tainted').length === 3")
    window.click("[data-node='nd-gb300-v6-1'] .device.tainted")
    assert "⚠ dra.net/link-down:NoSchedule" in window.text("#picked")


def test_everything_can_be_reached_with_the_keyboard_alone(window: Browser, misplaced: Lab) -> None:
    window.open(misplaced.url)
    window.wait("state.holders.size === 2")
    window.press("/", "worker-1")
    window.wait("view.total === 1 && !toDraw.size")
    for _ in range(20):
        window.press("Tab")
        if window.value("document.activeElement.dataset.node"):
            break
    assert window.value("document.activeElement.dataset.node") == "nd-gb300-v6-1"
    window.press("Enter")
    assert "Distance of every GPU and NIC".upper() in window.text("#picked").upper()
    for _ in range(20):
        window.press("Tab")
        if window.value("document.activeElement.dataset.holder"):
            break
    assert window.value("document.activeElement.dataset.holder") == "default/nccl-test-dra-worker-1"
    window.press("Enter")
    assert "worker-1" in window.text("#picked h2")
    window.wait("document.getElementById('explain')")
    window.press("Escape")
    assert window.value("[state.picked, view.total]") == [None, 2]


def test_arrow_keys_walk_over_machines_and_tabs(window: Browser, misplaced: Lab) -> None:
    window.open(misplaced.url)
    window.wait("state.nodes.size === 2")
    window.run("document.querySelector('.machine').focus()")
    window.press("Down")
    assert window.value("document.activeElement.dataset.node") == "nd-gb300-v6-1"
    window.run("document.getElementById('tab-pods').focus()")
    window.press("Right", "Right", "Right", "Right")
    assert window.value("[document.activeElement.id, document.getElementById('try').hidden]") == ["tab-try", False]


def test_a_change_does_not_take_the_focus_away(window: Browser, misplaced: Lab) -> None:
    window.open(misplaced.url)
    window.wait("state.holders.size === 2")
    window.run("document.querySelector('[data-holder]').focus()")
    before = window.value("document.activeElement.dataset.holder")
    window.run("window.number = state.number")
    misplaced.call(lambda: misplaced.machines("a4-highgpu-8g"))
    window.wait("state.number > window.number && !toDraw.size")
    assert window.value("document.activeElement.dataset.holder") == before


TYPED = """
const box = document.getElementById("search");
box.value = arguments[0];
box.dispatchEvent(new Event("input"));
"""
CHIP = "[...document.querySelectorAll('#states button')].find((one) => one.textContent.includes(arguments[0])).click()"


def test_search_finds_nodes_pods_and_devices(window: Browser, misplaced: Lab) -> None:
    misplaced.call(lambda: misplaced.machines("a4-highgpu-8g=2"))
    window.open(misplaced.url)
    window.wait("state.nodes.size === 4")
    for text, nodes in (
        ("v6-1", ["nd-gb300-v6-1"]),
        ("worker-0", ["nd-gb300-v6-0"]),
        ("0104:00:00.0", ["nd-gb300-v6-0", "nd-gb300-v6-1"]),
        ("gpu7rdma0 8g-1", ["a4-highgpu-8g-1"]),
        ("nowhere", []),
    ):
        window.do(TYPED, text)
        assert sorted(window.value("view.order.map((entry) => entry.name)")) == nodes, text


def test_filters_narrow_to_machines_in_that_state(window: Browser, misplaced: Lab) -> None:
    misplaced.call(lambda: misplaced.machines("a4-highgpu-8g"))
    window.open(misplaced.url)
    window.wait("state.nodes.size === 3 && state.holders.size === 2")
    window.do(CHIP, "misplaced")
    assert window.value("view.order.map((entry) => entry.name)") == ["nd-gb300-v6-0", "nd-gb300-v6-1"]


DROP = """
const carried = new DataTransfer();
carried.items.add(new File([arguments[0]], arguments[1], {type: "text/plain"}));
const how = {dataTransfer: carried, bubbles: true, cancelable: true};
for (const kind of ["dragover", "drop"]) document.dispatchEvent(new DragEvent(kind, how));
"""


def test_a_dropped_manifest_shows_plan_and_lint_and_changes_nothing(window: Browser, misplaced: Lab) -> None:
    window.open(misplaced.url)
    window.wait("state.holders.size === 2")
    writes = misplaced.api.writes
    job = (EXAMPLES / "4-aks-gb300/mpijob.yaml").read_text().replace("1nic-aligned", "2nic-aligned")
    job = job.replace("nccl-test-dra", "another-job")
    claims = (EXAMPLES / "4-aks-gb300/claims.yaml").read_text().replace("0008:06:00.0", "0009:06:00.0")
    window.run(DROP, f"{claims}\n---\n{job}", "job.yaml")
    window.wait("document.querySelectorAll('#tried h3').length === 2")
    said = window.text("#tried")
    assert "2 pods placed".upper() in said.upper() and "another-job-worker-0" in said and "▲ NODE" in said
    assert "pinned" in said or "finding" in said.lower()
    window.click("#tried [data-holder='plan default/another-job-worker-0']")
    assert window.texts("[data-node='nd-gb300-v6-0'] .device.planned .name") == ["GPU1", "NIC0", "NIC1"]
    assert "Planned, not applied" in window.text("#picked")
    assert misplaced.api.writes == writes


def test_a_manifest_that_is_no_yaml_says_where(window: Browser, misplaced: Lab) -> None:
    window.open(misplaced.url)
    window.run(DROP, "kind: [", "broken.yaml")
    window.wait("document.querySelectorAll('#tried h3').length === 1")
    assert "broken.yaml:2:1: not valid YAML" in window.text("#tried")


def test_a_pod_that_waits_is_listed_and_explained(window: Browser, misplaced: Lab) -> None:
    text = (EXAMPLES / "4-aks-gb300/claims.yaml").read_text() + "\n---\n"
    text += "apiVersion: v1\nkind: Pod\nmetadata: {name: late}\nspec:\n  containers: [{name: a, image: b}]\n"
    text += "  resourceClaims: [{name: one, resourceClaimTemplateName: 1nic-aligned}]\n"
    for item in misplaced.api.objects(resources.RESOURCE_CLAIM_TEMPLATES):
        name = item["metadata"]["name"]
        misplaced.call(partial(misplaced.api.remove, resources.RESOURCE_CLAIM_TEMPLATES, name, "default"))
    misplaced.do(misplaced.run_text(text, schedule=False))
    window.open(misplaced.url)
    window.wait("state.holders.has('default/late')")
    window.run("pick({holder: 'default/late'})")
    window.wait("document.getElementById('explain')")
    assert "cannot be placed" in window.text("#explain") and "in use" in window.text("#explain")
    assert "no node yet" in window.text("#picked")


def test_an_export_needs_no_server(window: Browser, misplaced: Lab, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(misplaced.do(export(LiveSource("the lab", misplaced.client))), "utf-8")
    window.open(file.as_uri())
    window.click(f"[data-holder='{WORKER}']")
    window.wait("document.getElementById('explain')")
    assert "better and free" in window.text("#explain")
    window.click("[data-node='nd-gb300-v6-0'] .device.nic")
    window.wait("document.getElementById('picked').innerText.includes('azure.dra.net/vmSize')")
    assert window.value("document.getElementById('tab-try').hidden") is True
    assert "○ recorded" in window.text("#status")
    assert window.value("performance.getEntriesByType('resource').length") == 0


def test_a_thousand_machines_are_scrolled_through_with_few_elements(window: Browser, tmp_path: Path) -> None:
    from dranet.cli.serve import recorded_source

    file = tmp_path / "page.html"
    file.write_text(asyncio.run(export(recorded_source(("nd-gb300-v6=1000",), ()))), "utf-8")
    window.open(file.as_uri())
    window.run("state.size = 'tile'; refreshNodes()")
    assert window.value("document.querySelectorAll('#rows .machine').length") < 150
    window.run("document.querySelector('.machine').focus()")
    window.press("End")
    assert window.value("document.activeElement.dataset.node") == "nd-gb300-v6-999"
    assert window.value("document.querySelectorAll('#rows .machine').length") < 150
    window.press("Enter")
    assert "nd-gb300-v6-999" in window.text("#picked h2")


CLAIM = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: gpu.nvidia.com}}
spec: {{selectors: [{{cel: {{expression: device.driver == "gpu.nvidia.com"}}}}]}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: dranet}}
spec: {{selectors: [{{cel: {{expression: device.driver == "dra.net"}}}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: pair}}
spec:
  spec:
    devices:
      requests:
      - {{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com, count: {count}}}}}
      - {{name: nic, exactly: {{deviceClassName: dranet, count: {count}}}}}
      constraints: [{{requests: [gpu, nic], matchAttribute: resource.kubernetes.io/pcieRoot}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: many}}
spec:
  replicas: 3
  template:
    spec:
      resourceClaims: [{{name: d, resourceClaimTemplateName: pair}}]
      containers: [{{name: c, image: i, resources: {{claims: [{{name: d}}]}}}}]
"""


def test_a_plan_is_seen_among_many_machines(window: Browser, cluster: Lab) -> None:
    cluster.call(lambda: cluster.machines("a4-highgpu-8g=40"))
    window.open(cluster.url)
    window.wait("state.nodes.size === 40")
    window.run(DROP, CLAIM.format(count=1), "job.yaml")
    window.wait("document.querySelectorAll('#tried h3').length === 2")
    assert "PLANNED HERE: 3 PODS" in window.text("#rows").upper()
    assert window.value("document.querySelectorAll('#rows .machine.has-plan.drawing').length") == 3
    assert window.value("document.querySelectorAll('#rows .machine.tile').length") > 0
    assert window.texts("#rows .device.planned .name")[:2] == ["GPU0", "NIC0"]


def test_an_unschedulable_manifest_is_explained_with_its_fix(window: Browser, cluster: Lab) -> None:
    cluster.call(lambda: cluster.machines("a4-highgpu-8g=2"))
    window.open(cluster.url)
    window.wait("state.nodes.size === 2")
    window.run(DROP, CLAIM.format(count=3), "job.yaml")
    window.wait("document.querySelectorAll('#tried h3').length === 2")
    said = window.text("#tried .explanation")
    assert "holds at most 2 GPUs and 2 NICs, 3 and 3 are requested" in said
    assert "matchAttribute: resource.kubernetes.io/pcieRoot" in said, "the claim that does it"
