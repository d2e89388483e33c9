"""Mistakes that published manifests have: each is valid YAML, and mostly valid for the API server too."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dranet.advise.lint.rules.base import (
    ERROR,
    INFO,
    WARNING,
    Context,
    Finding,
    claim_example,
    finding,
    request_example,
    rule,
    selectors_example,
    template_example,
)
from dranet.advise.manifests import gpu_limits
from dranet.advise.plan.selectors import request_drivers
from dranet.core.untyped import as_dict, as_dicts, get_path
from dranet.scheduler.releases import NEWEST, OLDEST, Gate, Release, as_release

_KEY = re.compile(r"""device\s*\.\s*(attributes|capacity)\s*\[\s*["']([^"'/]+)/([^"']+)["']\s*\]""")
_TYPED = re.compile(r"\s*\.\s*(?:string|int|bool|version)\b")


@rule(
    "attribute-key",
    ERROR,
    "A selector that looks up an attribute by its full name",
    why="The keys of device.attributes are domains. Such a lookup is an error on every device, and the scheduler gives "
    "up on the pod.",
    bad=template_example(
        request_example(selectors=selectors_example('device.attributes["dra.net/rdma"].bool == true'))
    ),
    good=template_example(request_example(selectors=selectors_example('device.attributes["dra.net"].rdma == true'))),
)
def attribute_key(context: Context) -> Iterator[Finding]:
    for selector in context.manifests.selectors:
        for found in _KEY.finditer(selector.text):
            kind, domain, name = found.groups()
            typed = " without a type" if _TYPED.match(selector.text[found.end() :]) else ""
            message = f"{domain}/{name} is no key of device.{kind}: the keys are domains"
            yield finding(selector.owner, selector.path, message, f'write device.{kind}["{domain}"].{name}{typed}')


@rule(
    "all-with-match",
    WARNING,
    "All devices of a node, and all with one value of an attribute",
    why="allocationMode All means every device of the node that the request matches. If one of them has another value, "
    "the scheduler reports an error and the pod stays pending.",
    bad=template_example(
        request_example(allocationMode="All"), constraints="- matchAttribute: resource.kubernetes.io/pcieRoot\n"
    ),
    good=template_example(
        request_example(count=2), constraints="- matchAttribute: resource.kubernetes.io/pcieRoot\n"
    ),
)  # fmt: skip
def all_with_match(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        for request in claim.requests:
            names = [c["matchAttribute"] for c in claim.constraints_of(request) if c.get("matchAttribute")]
            if request.mode == "All" and names:
                message = f"all devices of a node have to have one {names[0]}: also those below other roots"
                yield finding(claim.owner, (*request.path, "allocationMode"), message, "write a count instead of All")


@rule(
    "toleration-without-effect",
    INFO,
    "A toleration of device taints that does not prevent eviction",
    why="A toleration without an effect lets a pod be scheduled on a device with a NoExecute taint. The eviction "
    "controller only honours tolerations with the effect NoExecute, and evicts the pod at once.",
    bad=claim_example(request_example(tolerations="[{key: dra.net/link-down, operator: Exists}]")),
    good=claim_example(request_example(tolerations="[{key: dra.net/link-down, operator: Exists, effect: NoExecute}]")),
)
def toleration_without_effect(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        for request in claim.requests:
            for i, toleration in enumerate(as_dicts(request.fields.get("tolerations"))):
                if not toleration.get("effect"):
                    message = "without an effect it does not prevent eviction by a NoExecute taint"
                    fix = "add effect: NoExecute, or effect: NoSchedule if eviction is wanted"
                    yield finding(claim.owner, (*request.path, "tolerations", i), message, fix)


_RULE = "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: broken}\nspec:\n"
_TAINT = "  taint: {key: example.com/broken, effect: NoSchedule}\n"


@rule(
    "taint-rule-without-selector",
    WARNING,
    "A DeviceTaintRule without a deviceSelector",
    why="The documentation says that it selects no device, and the eviction controller does that. The scheduler taints "
    "every device of the cluster (kubernetes/kubernetes 141422).",
    bad=_RULE + _TAINT,
    good=_RULE + "  deviceSelector: {driver: dra.net, pool: node-1}\n" + _TAINT,
)
def taint_rule_without_selector(context: Context) -> Iterator[Finding]:
    for obj in context.manifests.objects:
        if obj.kind == "DeviceTaintRule" and get_path(obj.data, "spec", "deviceSelector") is None:
            message = "without a deviceSelector the scheduler taints every device of the cluster"
            yield finding(obj, ("spec",), message, "add deviceSelector with driver, pool or device")


_DOMAIN = """
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {{name: d}}
spec:
  numNodes: {nodes}
  channel: {{resourceClaimTemplate: {{name: channel}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: worker}}
spec:
  resourceClaims: [{{name: channel, resourceClaimTemplateName: channel}}]
  containers: [{{name: worker, image: example, resources: {{claims: [{{name: channel}}]}}}}]
"""


@rule(
    "compute-domain-nodes",
    WARNING,
    "A ComputeDomain for another number of nodes than pods claim it",
    why="Its status never becomes Ready. Without the driver's feature gate IMEXDaemonsWithDNSNames, all its pods stay "
    "in ContainerCreating. The field is deprecated: write 0.",
    bad=_DOMAIN.format(nodes=5),
    good=_DOMAIN.format(nodes=0),
)
def compute_domain_nodes(context: Context) -> Iterator[Finding]:
    for obj in context.manifests.objects:
        wanted = get_path(obj.data, "spec", "numNodes")
        name = get_path(obj.data, "spec", "channel", "resourceClaimTemplate", "name")
        if obj.kind != "ComputeDomain" or not isinstance(wanted, int) or not wanted or not name:
            continue
        users = [
            pod
            for pod in context.manifests.pods
            if pod.namespace == obj.namespace and not pod.per_node and any(ref.template == name for ref in pod.claims)
        ]
        pods = sum(len(pod.names) for pod in users)
        if users and pods != wanted:
            message = f"numNodes is {wanted}, but {pods} pods of the input claim {name}"
            yield finding(obj, ("spec", "numNodes"), message, "write numNodes: 0")


@rule(
    "gpus-two-ways",
    WARNING,
    "GPUs of one vendor from a device plugin and from a claim, in one pod",
    why="The device plugin and the DRA driver do not know of each other, and may hand out the same GPU. A node should "
    "offer its GPUs one way.",
    bad="apiVersion: v1\nkind: Pod\nmetadata: {name: worker}\nspec:\n"
    "  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]\n  containers:\n  - name: worker\n"
    "    image: example\n    resources: {limits: {nvidia.com/gpu: 1}, claims: [{name: gpu}]}\n---\n"
    + template_example(request_example("gpu", "gpu.nvidia.com"), name="gpu"),
    good=template_example(request_example("gpu", "gpu.nvidia.com", count=2), name="gpu"),
)
def gpus_two_ways(context: Context) -> Iterator[Finding]:
    for pod in context.manifests.pods:
        requests = [request for claim in context.manifests.claims_of(pod) for request in claim.requests]
        drivers = {driver for request in requests for driver in request_drivers(context.manifests, request)}
        for resource in gpu_limits(pod.spec):
            if f"gpu.{resource.partition('/')[0]}" in drivers:
                message = f"{resource} comes from a device plugin, and the claim has GPUs of the same vendor"
                yield finding(pod.source, pod.path, message, "request all GPUs in the claim")


@rule(
    "field-dropped",
    WARNING,
    "A field or kind that this version of Kubernetes drops",
    why="The API server drops fields whose feature gate is off, without a message. Name the gates of the cluster with "
    "--feature-gates.",
    bad=claim_example(request_example(derivedAttributes="[{name: example.com/a, expression: '1'}]")),
    good=claim_example(request_example()),
)
def field_dropped(context: Context) -> Iterator[Finding]:
    release = _release(context)
    text = f"Kubernetes {release.text} drops"
    for claim in context.manifests.claims:
        for request in claim.requests:
            for field, gate in _GATED.items():
                if request.fields.get(field) and gate not in release.gates:
                    where = (*request.path, field)
                    yield finding(claim.owner, where, f"{text} {field}: feature gate {gate} is off", _gate_fix(gate))
    for obj in context.manifests.objects:
        if obj.kind == "DeviceTaintRule" and Gate.DEVICE_TAINT_RULES not in release.gates:
            message = f"Kubernetes {release.text} ignores it: feature gate {Gate.DEVICE_TAINT_RULES} is off"
            yield finding(obj, ("kind",), message, _gate_fix(Gate.DEVICE_TAINT_RULES))
        for i, device in enumerate(
            as_dicts(get_path(obj.data, "spec", "devices")) if obj.kind == "ResourceSlice" else ()
        ):
            for name, value in as_dict(device.get("attributes")).items():
                if _LISTS & as_dict(value).keys() and Gate.LIST_ATTRIBUTES not in release.gates:
                    message = f"{text} the list of {name}: feature gate {Gate.LIST_ATTRIBUTES} is off"
                    where = ("spec", "devices", i, "attributes", name)
                    yield finding(obj, where, message, _gate_fix(Gate.LIST_ATTRIBUTES))


_LISTS = {"strings", "ints", "bools", "versions"}
_GATED = {"derivedAttributes": Gate.DERIVED_ATTRIBUTES, "capacity": Gate.CONSUMABLE_CAPACITY}


def _gate_fix(gate: Gate) -> str:
    return f"switch the gate on, and lint with --feature-gates {gate}=true"


def _release(context: Context) -> Release:
    wanted = context.kubernetes
    return wanted if isinstance(wanted, Release) else as_release(min(max(wanted, OLDEST), NEWEST))
