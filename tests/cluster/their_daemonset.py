"""The reference's own way to install its driver, as it is described, with nothing swapped but the image.

Mounts, rights, probes and arguments are the reference's: no CDI folder, no `/proc/sys`, and an account that can neither
list claims nor read pods. `--filter=` is what its end-to-end suite adds, for NICs that are veths.
"""

from __future__ import annotations

import re
from typing import Any

from tests.cluster import release
from tests.cluster.kubebed import Cluster

Manifest = dict[str, Any]
NAME = "dranet"
PROBE = {"httpGet": {"path": "/healthz", "port": 9177}}
FOLDERS = {
    "device-plugin": ("/var/lib/kubelet/plugins", None),
    "plugin-registry": ("/var/lib/kubelet/plugins_registry", None),
    "nri-plugin": ("/var/run/nri", None),
    "netns": ("/var/run/netns", "HostToContainer"),
    "infiniband": ("/dev/infiniband", "HostToContainer"),
    "bpf-programs": ("/sys/fs/bpf", "HostToContainer"),
    "dranet-run": ("/var/run/dranet", None),
}
MADE_IF_MISSING = ("infiniband", "dranet-run")
"""The reference has that for its own folder alone; nodes of a bed have no RDMA either."""


def image_of(bed: Cluster) -> str:
    """The image that our chart would use."""
    found = re.search(r'image: "(.+)"', bed.helm.template(release.CHART))
    assert found
    return found.group(1)


def objects(image: str, environment: dict[str, str] | None = None) -> list[Manifest]:
    return [_account(), *_rights(), _daemonset(image, environment or {})]


def _account() -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": release.SYSTEM}}


def _rights() -> list[Manifest]:
    group = "resource.k8s.io"
    rules = [
        ("", ["nodes"], ["get"]),
        ("", ["events"], ["create", "patch", "update"]),
        (group, ["resourceslices"], ["list", "watch", "create", "update", "delete"]),
        (group, ["resourceclaims", "deviceclasses"], ["get"]),
        (group, ["resourceclaims/status"], ["patch", "update"]),
    ]
    written = [{"apiGroups": [api], "resources": which, "verbs": verbs} for api, which, verbs in rules]
    driver = {"apiGroups": [group], "resources": ["resourceclaims/driver"], "resourceNames": ["dra.net"]}
    written.append({**driver, "verbs": ["associated-node:patch", "associated-node:update"]})
    api = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": release.SYSTEM}
    role = {"apiGroup": api, "kind": "ClusterRole", "name": NAME}
    return [
        {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": written},
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def _daemonset(image: str, environment: dict[str, str]) -> Manifest:
    labels = {"tier": "node", "app": NAME, "k8s-app": NAME}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": release.SYSTEM, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": NAME}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(image, environment)},
        },
    }


def _pod(image: str, environment: dict[str, str]) -> Manifest:
    node_name = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["/dranet", "--v=4", "--filter=", "--hostname-override=$(NODE_NAME)"],
        "env": [node_name, *({"name": key, "value": value} for key, value in environment.items())],
        "resources": {"requests": {"cpu": "100m", "memory": "50Mi"}},
        "securityContext": {"privileged": True},
        "startupProbe": {**PROBE, "failureThreshold": 12, "periodSeconds": 5},
        "readinessProbe": PROBE,
        "volumeMounts": [_mount(name) for name in FOLDERS],
    }
    return {
        "hostNetwork": True,
        "serviceAccountName": NAME,
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [_volume(name) for name in FOLDERS],
    }


def _mount(name: str) -> Manifest:
    path, propagation = FOLDERS[name]
    return {"name": name, "mountPath": path} | ({"mountPropagation": propagation} if propagation else {})


def _volume(name: str) -> Manifest:
    kind = {"type": "DirectoryOrCreate"} if name in MADE_IF_MISSING else {}
    return {"name": name, "hostPath": {"path": FOLDERS[name][0], **kind}}
