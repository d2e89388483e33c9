"""Manifests of a check: an Indexed Job whose pods claim NICs from a template, and a Service for their DNS names."""

from __future__ import annotations

from typing import Any

_CLAIM = "nics"
_LABEL = "batch.kubernetes.io/job-name"
"""The Job controller sets it on the pods of a Job."""


def manifests(name: str, members: int, template: str, *, image: str) -> list[dict[str, Any]]:
    """Service and Job, with one pod a node."""
    return [_service(name), _job(name, members, _pod(name, members, template, image))]


def _service(name: str) -> dict[str, Any]:
    """Headless, and also for pods that are not ready: it only provides DNS names."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {_LABEL: name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _job(name: str, members: int, pod: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "completionMode": "Indexed",
        "completions": members,
        "parallelism": members,
        "backoffLimit": 0,  # a check that finds a fault fails, and would find it again
        "activeDeadlineSeconds": 900,
        "template": {"spec": pod},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _pod(name: str, members: int, template: str, image: str) -> dict[str, Any]:
    one_per_node = {"labelSelector": {"matchLabels": {_LABEL: name}}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "restartPolicy": "Never",
        "subdomain": name,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [one_per_node]}},
        "resourceClaims": [{"name": _CLAIM, "resourceClaimTemplateName": template}],
        "containers": [_container(name, members, image)],
    }


def _container(name: str, members: int, image: str) -> dict[str, Any]:
    arguments = ["-n", str(members), "--first", f"{name}-0.{name}", "-o", "log"]
    return {
        "name": "check",
        "image": image,
        "command": ["/dranet", "check", "pair", *arguments],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"claims": [{"name": _CLAIM}]},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
