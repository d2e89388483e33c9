"""The fields that the API server knows in claims, slices, classes and pods.

A schema is a tree: a dict contains fields, a one-element list contains the items of a list, ``Map`` contains values
under free keys, and a type name (``str``, ``int``, ``bool``, ``quantity``) or ``any`` is a leaf. Pods are followed only
where devices are concerned; of the rest of a pod only the field names are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dranet.advise.manifests.yaml_nodes import FieldPath

Schema = Any


class Map(msgspec.Struct, frozen=True):
    """An object with free keys."""

    values: Schema


_SELECTORS: Schema = [{"cel": {"expression": "str"}}]
_TOLERATIONS: Schema = [
    {"key": "str", "operator": "str", "value": "str", "effect": "str", "tolerationSeconds": "int"},
]
_REQUEST: dict[str, Schema] = {
    "deviceClassName": "str",
    "selectors": _SELECTORS,
    "allocationMode": "str",
    "count": "int",
    "tolerations": _TOLERATIONS,
    "capacity": {"requests": Map("quantity")},
    "derivedAttributes": "any",
}
_EXACT = {**_REQUEST, "adminAccess": "bool"}
FLAT_REQUEST_FIELDS = tuple(_EXACT)
_SUBREQUESTS: Schema = [{"name": "str", **_REQUEST}]
_OPAQUE: Schema = {"driver": "str", "parameters": "any"}


def _claim_spec(request: dict[str, Schema]) -> Schema:
    return {
        "devices": {
            "requests": [{"name": "str", **request, "firstAvailable": _SUBREQUESTS}],
            "constraints": [{"requests": ["str"], "matchAttribute": "str", "distinctAttribute": "str"}],
            "config": [{"requests": ["str"], "opaque": _OPAQUE}],
        }
    }


_ATTRIBUTE: Schema = {
    "string": "str", "int": "int", "bool": "bool", "version": "str",
    "strings": ["str"], "ints": ["int"], "bools": ["bool"], "versions": ["str"],
}  # fmt: skip
_REQUIREMENTS: Schema = [{"key": "str", "operator": "str", "values": ["str"]}]
NODE_SELECTOR: Schema = {
    "nodeSelectorTerms": [{"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}],
}
_POLICY: Schema = {
    "default": "quantity",
    "validValues": ["quantity"],
    "validRange": {"min": "quantity", "max": "quantity", "step": "quantity"},
}
_DEVICE: dict[str, Schema] = {
    "attributes": Map(_ATTRIBUTE),
    "capacity": Map({"value": "quantity", "requestPolicy": _POLICY}),
    "taints": [{"key": "str", "value": "str", "effect": "str", "timeAdded": "str"}],
    "consumesCounters": [{"counterSet": "str", "counters": Map({"value": "quantity"})}],
    "nodeName": "str",
    "nodeSelector": NODE_SELECTOR,
    "allNodes": "bool",
    "bindsToNode": "bool",
    "bindingConditions": ["str"],
    "bindingFailureConditions": ["str"],
    "allowMultipleAllocations": "bool",
    "nodeAllocatableResourceMappings": "any",
    "compatibilityGroups": ["str"],
}


def _slice_spec(device: dict[str, Schema]) -> Schema:
    return {
        "driver": "str",
        "pool": {"name": "str", "generation": "int", "resourceSliceCount": "int"},
        "nodeName": "str",
        "nodeSelector": NODE_SELECTOR,
        "allNodes": "bool",
        "perDeviceNodeSelection": "bool",
        "devices": [{"name": "str", **device}],
        "sharedCounters": [{"name": "str", "counters": Map({"value": "quantity"})}],
        "partitionTypeAttribute": "str",
    }


_HEAD: dict[str, Schema] = {"apiVersion": "str", "kind": "str", "metadata": "any", "status": "any"}
_CLASS: Schema = {
    **_HEAD,
    "spec": {"selectors": _SELECTORS, "config": [{"opaque": _OPAQUE}], "extendedResourceName": "str"},
}


def _objects(request: dict[str, Schema], device: dict[str, Schema]) -> dict[str, Schema]:
    claim = _claim_spec(request)
    return {
        "DeviceClass": _CLASS,
        "ResourceClaim": {**_HEAD, "spec": claim},
        "ResourceClaimTemplate": {**_HEAD, "spec": {"metadata": "any", "spec": claim}},
        "ResourceSlice": {**_HEAD, "spec": _slice_spec(device)},
    }


_FLAT = _objects(dict(_EXACT), {"basic": _DEVICE})
_NESTED = _objects({"exactly": _EXACT}, _DEVICE)

RESOURCE_GROUP = "resource.k8s.io"
RESOURCE: dict[str, dict[str, Schema]] = {"v1": _NESTED, "v1beta2": _NESTED, "v1beta1": _FLAT}
"""By API version and kind."""


def _names(text: str) -> dict[str, Schema]:
    return dict.fromkeys(text.split(), "any")


_CONTAINER: dict[str, Schema] = {
    **_names(
        "args command envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy "
        "restartPolicy restartPolicyRules startupProbe stdin stdinOnce targetContainerName terminationMessagePath "
        "terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
    "env": [{"name": "str", "value": "str", "valueFrom": "any"}],
    "resources": {
        "limits": Map("quantity"),
        "requests": Map("quantity"),
        "claims": [{"name": "str", "request": "str"}],
    },
    "securityContext": {
        **_names(
            "allowPrivilegeEscalation appArmorProfile privileged procMount readOnlyRootFilesystem runAsGroup "
            "runAsNonRoot runAsUser seLinuxOptions seccompProfile windowsOptions"
        ),
        "capabilities": {"add": ["str"], "drop": ["str"]},
    },
}
POD_SPEC: dict[str, Schema] = {
    **_names(
        "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
        "hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets "
        "nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates "
        "resources restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup "
        "securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
        "terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef "
    ),
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "ephemeralContainers": [_CONTAINER],
    "resourceClaims": [{"name": "str", "resourceClaimName": "str", "resourceClaimTemplateName": "str"}],
}

TYPES = {"str": (str,), "int": (int,), "bool": (bool,), "quantity": (str, int, float)}
TYPE_NAMES = {"str": "a string", "int": "a whole number", "bool": "true or false", "quantity": "a quantity"}


def is_type(value: object, name: str) -> bool:
    """Whether a value has the type of a leaf of the schema."""
    if name not in TYPES:
        return True
    return isinstance(value, TYPES[name]) and (name == "bool" or not isinstance(value, bool))


def places_of(name: str, schema: Schema, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every path in a schema that has a field of this name; list items add no step."""
    if isinstance(schema, list):
        return places_of(name, schema[0], path)
    if not isinstance(schema, dict):
        return []
    found = [path] if name in schema else []
    return found + [place for key, inner in schema.items() for place in places_of(name, inner, (*path, key))]


def unknown_fields(value: Any, schema: Schema, path: FieldPath) -> Iterator[tuple[FieldPath, tuple[str, ...]]]:
    """Every field of a value that its schema does not have, with the names that it has there."""
    if isinstance(schema, list) and isinstance(value, list):
        for i, item in enumerate(value):
            yield from unknown_fields(item, schema[0], (*path, i))
    elif isinstance(schema, Map) and isinstance(value, dict):
        for key, item in value.items():
            yield from unknown_fields(item, schema.values, (*path, key))
    elif isinstance(schema, dict) and isinstance(value, dict):
        for key, item in value.items():
            if key in schema:
                yield from unknown_fields(item, schema[key], (*path, key))
            else:
                yield (*path, key), tuple(schema)


def known_part(value: Any, schema: Schema) -> Any:
    """The part of a value that the schema has; None where it has nothing."""
    if isinstance(schema, dict):
        if not isinstance(value, Mapping):
            return {}
        kept = {key: known_part(value[key], inner) for key, inner in schema.items() if value.get(key) is not None}
        return {key: inner for key, inner in kept.items() if inner is not None}
    if isinstance(schema, list):
        items = value if isinstance(value, list) else []
        return [item for item in (known_part(raw, schema[0]) for raw in items) if item is not None]
    if isinstance(schema, Map):
        return (
            {key: known_part(inner, schema.values) for key, inner in value.items()}
            if isinstance(value, Mapping)
            else {}
        )
    return value if is_type(value, schema) else None


_LEAF_TYPES: dict[str, Any] = {"str": str, "int": int, "bool": bool, "quantity": str | int | float, "any": Any}
_types: dict[int, tuple[Schema, Any]] = {}


def conforms(value: Any, schema: Schema) -> bool:
    """Whether every field of a value is in the schema and of its type.

    msgspec validates at the speed of C: a dump of a large cluster has hundreds of thousands of objects, and most have
    no mistakes. It never accepts wrongly, but it refuses a few valid values (null, empty lists), so callers check what
    it refuses field by field.
    """
    found = _types.get(id(schema))
    if found is None:
        # Keep the schema with its type: after garbage collection another object could get the same id.
        found = _types[id(schema)] = (schema, _type(schema))
    try:
        msgspec.convert(value, found[1])
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _type(schema: Schema) -> Any:
    if isinstance(schema, str):
        return _LEAF_TYPES[schema]
    if isinstance(schema, list):
        return list[_type(schema[0])]  # type: ignore[misc]
    if isinstance(schema, Map):
        return dict[str, _type(schema.values)]  # type: ignore[misc]
    fields = [
        (f"field_{i}", _type(inner), msgspec.field(default=None, name=name))
        for i, (name, inner) in enumerate(schema.items())
    ]
    return msgspec.defstruct("Fields", fields, forbid_unknown_fields=True, gc=False)
