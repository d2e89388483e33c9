"""The checks of the API server on claims: a claim that fails them never exists, and no pod gets it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dranet.advise.manifests import Claim, FieldPath, Request, empty_selectors, is_quantity, version_of
from dranet.core.names import is_dns_label
from dranet.core.untyped import as_dict, as_list, get_path

REQUESTS, SELECTORS, CONSTRAINTS, CONFIGS, ALTERNATIVES = 32, 32, 32, 32, 8
_PARAMETERS = 10_240
"""Bytes of one config."""
OPERATORS, EFFECTS = ("Exists", "Equal"), ("NoSchedule", "NoExecute", "None")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[^/]+/[A-Za-z_][A-Za-z0-9_]{0,31}")

_ClaimProblem = tuple[FieldPath, str, str]
NO_EXPRESSION, WRITE_EXPRESSION = "a selector needs cel.expression", "write cel: {expression: ...}"


def claim_problems(claim: Claim) -> Iterator[_ClaimProblem]:
    """Place, message and fix of everything in a claim that the API server checks and refuses."""
    yield from _request_problems(claim)
    yield from _constraint_problems(claim)
    yield from _config_problems(claim)


def _devices(claim: Claim) -> FieldPath:
    return (*claim.base, "devices")


def _request_problems(claim: Claim) -> Iterator[_ClaimProblem]:
    base = (*_devices(claim), "requests")
    raw = as_list(get_path(claim.owner.data, *base))
    if len(raw) > REQUESTS:
        yield base, f"{len(raw)} requests, at most {REQUESTS} are allowed", "use count, or several claims"
    seen: set[str] = set()
    stored = _stored_requests(claim)
    for i, entry in enumerate(raw):
        name = str(as_dict(entry).get("name", ""))
        if i < len(stored) and ("exactly" in stored[i]) == bool(stored[i].get("firstAvailable")):
            yield (*base, i), f"request {name!r} must have one of exactly and firstAvailable", _shape_hint(claim)
        if not is_dns_label(name):
            yield (*base, i), f"request name {name!r} is not a DNS label", "use lower-case letters, digits and '-'"
        if name in seen:
            yield (*base, i, "name"), f"two requests are called {name!r}", "give each its own name"
        seen.add(name)
        if len(as_list(as_dict(entry).get("firstAvailable"))) > ALTERNATIVES:
            where = (*base, i, "firstAvailable")
            yield where, f"more than {ALTERNATIVES} alternatives", f"keep at most {ALTERNATIVES}"
    for request in claim.requests:
        yield from _one_request(request)
        if "/" in request.name and not is_dns_label(request.name.partition("/")[2]):
            message = f"the alternative {request.name!r} needs a name that is a DNS label"
            yield request.path, message, "use lower-case letters, digits and '-'"
        for where in empty_selectors(claim.owner, request.path):
            yield where, NO_EXPRESSION, WRITE_EXPRESSION


def _stored_requests(claim: Claim) -> list[dict[str, Any]]:
    """The requests as a server would store them, in v1 shape."""
    made = claim.v1["spec"]
    inner = made.get("spec") or {} if claim.owner.kind == "ResourceClaimTemplate" else made
    return as_list(as_dict(inner.get("devices")).get("requests"))


def _shape_hint(claim: Claim) -> str:
    flat = version_of(claim.owner.api_version) == "v1beta1"
    return "write deviceClassName next to the name" if flat else "write exactly: {deviceClassName: ...}"


def _one_request(request: Request) -> Iterator[_ClaimProblem]:
    if not request.device_class:
        yield request.path, f"request {request.name!r} names no deviceClassName", "write deviceClassName"
    elif not _SUBDOMAIN.fullmatch(request.device_class):
        where = (*request.path, "deviceClassName")
        yield where, f"{request.device_class!r} is not a class name", "use lower-case letters, digits, '-' and '.'"
    if request.mode not in {"ExactCount", "All"}:
        where = (*request.path, "allocationMode")
        yield where, f"allocationMode {request.mode!r} does not exist", "use ExactCount or All"
    if request.mode == "All" and request.fields.get("count"):
        yield (*request.path, "count"), "count must not be set with allocationMode All", "remove count"
    if request.mode == "ExactCount" and request.count <= 0:
        yield (*request.path, "count"), f"count is {request.count}, it must be at least 1", "write a positive count"
    for key, amount in as_dict(as_dict(request.fields.get("capacity")).get("requests")).items():
        if not is_quantity(amount):
            yield (*request.path, "capacity"), f"{key}: {amount!r} is not a quantity", "write a quantity such as 10Gi"
    if len(request.selectors) > SELECTORS:
        yield (*request.path, "selectors"), f"more than {SELECTORS} selectors", "join them with &&"
    for i, toleration in enumerate(map(as_dict, as_list(request.fields.get("tolerations")))):
        yield from _toleration((*request.path, "tolerations", i), toleration)


def _toleration(path: FieldPath, toleration: dict[str, Any]) -> Iterator[_ClaimProblem]:
    operator, effect = toleration.get("operator", "Equal"), toleration.get("effect") or "NoSchedule"
    if operator not in OPERATORS:
        yield (*path, "operator"), f"operator {operator!r} does not exist", f"use {' or '.join(OPERATORS)}"
    if operator == "Exists" and toleration.get("value"):
        yield (*path, "value"), "value must be empty for operator Exists", "remove value, or use operator Equal"
    if effect not in EFFECTS:
        yield (*path, "effect"), f"effect {effect!r} does not exist", f"use {', '.join(EFFECTS)}"


def _constraint_problems(claim: Claim) -> Iterator[_ClaimProblem]:
    base = (*_devices(claim), "constraints")
    if len(claim.constraints) > CONSTRAINTS:
        yield base, f"more than {CONSTRAINTS} constraints", f"keep at most {CONSTRAINTS}"
    for i, constraint in enumerate(claim.constraints):
        given = [constraint.get("matchAttribute"), constraint.get("distinctAttribute")]
        if not any(given):
            yield (*base, i), "a constraint needs matchAttribute or distinctAttribute", "name the attribute to compare"
        for key in ("matchAttribute", "distinctAttribute"):
            name = constraint.get(key)
            if isinstance(name, str) and not _QUALIFIED.fullmatch(name):
                yield (*base, i, key), *_attribute_name_problem(name)
        yield from _references(claim, (*base, i), constraint)


def is_attribute_name(name: str) -> bool:
    """Whether this is the name of an attribute with its domain."""
    return _QUALIFIED.fullmatch(name) is not None


def _attribute_name_problem(name: str) -> tuple[str, str]:
    domain, _, bare = name.rpartition("/")
    if not domain:
        fix = f"write its domain too, such as resource.kubernetes.io/{bare or 'pcieRoot'}"
        return f"{name!r} is not a fully qualified attribute name", fix
    letters = "letters, digits and _, at most 32, and does not start with a digit"
    return f"{bare!r} is not an attribute name: it consists of {letters}", "write the name that the driver publishes"


def _config_problems(claim: Claim) -> Iterator[_ClaimProblem]:
    base = (*_devices(claim), "config")
    if len(claim.configs) > CONFIGS:
        yield base, f"more than {CONFIGS} configs", f"keep at most {CONFIGS}"
    for i, config in enumerate(claim.configs):
        opaque = as_dict(config.get("opaque"))
        if not opaque.get("driver"):
            yield (*base, i), "a config needs opaque.driver", "write opaque: {driver: dra.net, parameters: ...}"
        parameters = opaque.get("parameters")
        if not isinstance(parameters, dict):
            yield (*base, i), "a config needs opaque.parameters, an object", "write the driver's parameters"
        elif len(json.dumps(parameters, default=str)) > _PARAMETERS:
            yield (*base, i), f"parameters of more than {_PARAMETERS} bytes", "use fewer parameters"
        yield from _references(claim, (*base, i), config)


def _references(claim: Claim, path: FieldPath, entry: dict[str, object]) -> Iterator[_ClaimProblem]:
    known = {request.name for request in claim.requests} | {request.parent for request in claim.requests}
    names = as_list(entry.get("requests"))
    for i, name in enumerate(names):
        if name in names[:i]:
            yield (*path, "requests", i), f"request {name!r} is named twice", "name it once"
        if name not in known:
            shown = ", ".join(sorted(known)) or "none"
            yield (*path, "requests", i), f"no request is called {name!r}", f"requests of this claim: {shown}"
