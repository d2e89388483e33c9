"""Our driver on a bed as its users have it: the image built by its own script, the chart installed by helm.

The image is built and loaded once for a run. Most modules share one installation (the fixture `driver`), some install
the driver with values of their own.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dranet.testing.waiting import wait_until
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import RESOURCE_API

PROJECT = Path(__file__).resolve().parents[2]
CHART = PROJECT / "deploy/helm/dranet"
RELEASE = "dranet"
CLASS = "dra.net"
NIC = 'device.attributes["dra.net"].ifName.startsWith("nic")'
"""A selector for the NICs of a bed: the driver also publishes the nodes' links to their pods."""
SYSTEM = "kube-system"
KEEP_AWAY = "no-dranet"
"""The driver leaves a node that has this label."""
VALUES: dict[str, Any] = {
    "image": {"pullPolicy": "Never"},
    "args": {"filter": ""},  # NICs of a bed are veths, which the driver leaves alone by default
    "terminationGracePeriodSeconds": 15,
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": KEEP_AWAY, "operator": "DoesNotExist"}]}]
            }
        }
    },
}


@functools.cache
def image() -> Path:
    """The tar file of the driver's image, built from the tree as it is now; DRANET_IMAGE names a finished one."""
    if given := os.environ.get("DRANET_IMAGE"):
        return Path(given)
    folder = Path(tempfile.mkdtemp(prefix="dranet-image-"))
    atexit.register(shutil.rmtree, folder)
    output = folder / "image.tar"
    command = [sys.executable, str(PROJECT / "deploy/image/build.py"), "--output", str(output)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return output


@functools.cache
def load_image(bed: Cluster) -> None:
    bed.load_image(image())


def install(bed: Cluster, **values: Any) -> None:
    """Install afresh, which is quicker than an update; returns when the driver is ready on every node."""
    load_image(bed)
    uninstall(bed)
    bed.install_driver(RELEASE, CHART, values=_merged(VALUES, values))
    bed.kubectl.apply(device_class(CLASS, 'device.driver == "dra.net"'))


def remove(bed: Cluster) -> None:
    bed.kubectl.delete(f"deviceclass/{CLASS}")
    uninstall(bed)


def uninstall(bed: Cluster) -> None:
    """helm waits for its objects to be gone, not for the pods of its DaemonSet, which still serve and write files."""
    bed.uninstall_driver(RELEASE)
    wait_until(lambda: not drivers(bed, serving=False), "the driver's pods to be gone")


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: {**value, **over.get(key, {})} for key, value in base.items() if isinstance(value, dict)}
    return {**base, **over, **both}


def device_class(name: str, *expressions: str) -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "apiVersion": RESOURCE_API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors},
    }


def drivers(bed: Cluster, *, serving: bool = True) -> dict[str, dict[str, Any]]:
    """The driver's pod on each node; only those that serve, or all that are there."""
    pods = bed.kubectl.in_namespace(SYSTEM).items("pods", "-l", f"app={RELEASE}")
    return {pod["spec"].get("nodeName", ""): pod for pod in pods if _ready(pod) or not serving}


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or []
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def published(kubectl: Kubectl, node: str) -> dict[str, dict[str, Any]]:
    """The devices our driver has published for a node, by name; values of attributes without their types."""
    found: dict[str, dict[str, Any]] = {}
    for item in kubectl.items("resourceslices"):
        if (item["spec"]["driver"], item["spec"].get("nodeName")) == ("dra.net", node):
            for device in item["spec"].get("devices") or []:
                attributes = device.get("attributes") or {}
                found[device["name"]] = {key: next(iter(value.values())) for key, value in attributes.items()}
    return found


def wait_published(kubectl: Kubectl, node: str, *devices: str) -> None:
    wait_until(lambda: set(devices) <= set(published(kubectl, node)), f"{node} to publish {', '.join(devices)}")
