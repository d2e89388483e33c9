"""Each cloud's overlay is the plain manifest with that cloud's hint, and nothing of it is lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

HINTS = {"gke": "GCE", "aks": "AZURE", "eks": "AWS", "oke": "OKE", "bare-metal": "NONE"}


@pytest.fixture(scope="module")
def kustomized(kubectl: str, deploy: Path) -> dict[str, list[dict[str, Any]]]:
    folders = [deploy / "kustomize" / cloud for cloud in HINTS]
    printed = [
        subprocess.run([kubectl, "kustomize", folder], capture_output=True, check=True).stdout for folder in folders
    ]
    return {folder.name: list(yaml.safe_load_all(text)) for folder, text in zip(folders, printed, strict=True)}


def names(items: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(item["kind"], item["metadata"]["name"]) for item in items}


def pod_spec(items: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = [item["spec"]["template"]["spec"] for item in items if item["kind"] == "DaemonSet"]
    return dict(found)


def test_every_cloud_has_a_folder(deploy: Path) -> None:
    assert {path.name for path in (deploy / "kustomize").iterdir()} == {*HINTS, "base"}


def test_the_base_is_the_plain_manifest(deploy: Path) -> None:
    copy = (deploy / "kustomize/base/install.yaml").read_text()
    assert copy == (deploy / "install.yaml").read_text(), "run: make install-yaml"


@pytest.mark.parametrize("cloud", HINTS)
def test_an_overlay_appends_its_hint_to_the_plain_manifest(
    kustomized: dict[str, list[dict[str, Any]]], deploy: Path, cloud: str
) -> None:
    plain = list(yaml.safe_load_all((deploy / "install.yaml").read_text()))
    assert names(kustomized[cloud]) == names(plain)
    [before], [after] = (pod_spec(items)["containers"] for items in (plain, kustomized[cloud]))
    assert after["args"] == [*before["args"], f"--cloud-provider-hint={HINTS[cloud]}"]


def test_skips_gke_nodes_with_the_managed_driver(kustomized: dict[str, list[dict[str, Any]]]) -> None:
    node_affinity = pod_spec(kustomized["gke"])["affinity"]["nodeAffinity"]
    [term] = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "cloud.google.com/gke-networking-dra-driver", "operator": "NotIn", "values": ["true"]}
    ]


@pytest.mark.parametrize("cloud", HINTS)
def test_an_overlay_names_no_image_that_only_this_machine_has(
    kustomized: dict[str, list[dict[str, Any]]], cloud: str
) -> None:
    spec = pod_spec(kustomized[cloud])
    assert [found["image"].partition(":")[0] for found in spec["containers"]] == ["set-your-registry.invalid/dranet"]


def test_an_image_of_ones_own_replaces_the_name(kubectl: str, deploy: Path, tmp_path: Path) -> None:
    """As the comment in each overlay says; without the kustomize command, in a folder on top of an overlay."""
    overlay = os.path.relpath(deploy / "kustomize" / "gke", tmp_path)
    images = [{"name": "set-your-registry.invalid/dranet", "newName": "registry.example.com/team/dranet"}]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [overlay], "images": images}))
    done = subprocess.run([kubectl, "kustomize", tmp_path], capture_output=True, check=True)
    [found] = pod_spec(list(yaml.safe_load_all(done.stdout)))["containers"]
    assert found["image"].startswith("registry.example.com/team/dranet:")
