"""`dranet record`, and what `plan` concludes from its file: what a complete list does not have does not exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dranet.advise.manifests import recording_object
from dranet.core.device import Device
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.resources import PODS, RESOURCE_SLICES, SCHEDULING_RESOURCES
from dranet.testing.apiserver import SandboxApiServer
from tests.cli.api import run_against
from tests.inputs import run

KINDS = [resource.kind for resource in SCHEDULING_RESOURCES]


async def test_a_recording_names_its_kinds_and_has_no_copies_of_manifests(tmp_path: Path) -> None:
    server = SandboxApiServer()
    for item in resource_slices([Device(name="eth1")], node="node-a"):
        server.put(RESOURCE_SLICES, item)
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"}
    server.put(PODS, {"metadata": {"name": "p", "namespace": "default", "annotations": applied}, "spec": {}})
    done = await run_against(server, tmp_path, "record", "-o", str(tmp_path / "cluster.json"))
    assert done.exit_code == 0, done.output
    items = json.loads((tmp_path / "cluster.json").read_text())["items"]
    kinds = next(item["kinds"] for item in items if item["kind"] == "Recording")
    assert {"Node", "Pod", "ResourceSlice"} <= set(kinds)
    assert [item["metadata"]["annotations"] for item in items if item["kind"] == "Pod"] == [{"kept": "yes"}]
    assert "Secret" not in {*kinds, *(item["kind"] for item in items)}


def planned(folder: Path, *recorded: dict[str, Any], **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    (made,) = resource_slices([Device(name="eth1")], node="n")
    ours = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **made}
    pod_spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec}
    (folder / "pod.json").write_text(json.dumps(pod))
    (folder / "cluster.json").write_text(json.dumps({"kind": "List", "items": [node, ours, *recorded]}))
    done = run("plan", "-o", "json", "-f", folder / "pod.json", "--slices", folder / "cluster.json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("priorityClassName", "no PriorityClass with name x was found"),
        ("runtimeClassName", 'pod rejected: RuntimeClass "x" not found'),
        ("serviceAccountName", 'error looking up service account default/x: serviceaccount "x" not found'),
    ],
)
def test_what_a_complete_recording_does_not_have_is_refused(tmp_path: Path, field: str, why: str) -> None:
    complete = recording_object("v1.36.4", KINDS)
    found = planned(tmp_path, complete, **{field: "x"})
    assert found["unschedulable"] == [{"pod": "p", "reason": f'pods "p" is forbidden: {why}', "refused": True}]
    assert "REFUSED" in run("plan", tmp_path / "pod.json", "--slices", tmp_path / "cluster.json").stdout
    assert planned(tmp_path, **{field: "x"})["unschedulable"] == []


def test_kinds_that_an_older_recording_does_not_have_are_listed(tmp_path: Path) -> None:
    (line,) = [text for text in planned(tmp_path)["not_considered"] if text.startswith("the recording has no")]
    assert "Namespace" in line
    assert "dranet record" in line
