"""Parameters by device (`perDevice`): their expressions, and their values for each device that a request can get."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET

from dranet.advise.lint.rules.base import (
    ERROR,
    Context,
    Finding,
    claim_example,
    finding,
    request_example,
    rule,
)
from dranet.advise.manifests import Claim, FieldPath, Object, Request
from dranet.advise.plan.hardware import PublishedDevice
from dranet.cel.device_match import compile_match, device_matches
from dranet.core.attributes import RAIL
from dranet.core.device import attribute_from_api
from dranet.core.errors import InvalidInput
from dranet.core.names import DRIVER_NAME
from dranet.core.netconfig import NetworkConfig
from dranet.core.netconfig_merge import merge
from dranet.core.netconfig_parse import parse_leniently
from dranet.core.per_device import resolve
from dranet.core.rail_routing import rail_table
from dranet.core.untyped import as_dict, as_list, get_path

_FIX = "see docs/tasks/rail-routing.md"


def _example(match: str) -> str:
    config = (
        "- opaque:\n    driver: dra.net\n    parameters:\n      perDevice:\n"
        f"      - match: '{match}'\n        interface: {{name: \"net{{rail}}\"}}\n"
    )
    return claim_example(request_example(), config=config)


@rule(
    "device-parameters",
    ERROR,
    "Parameters by device that the driver rejects",
    why="Parameters under perDevice are resolved on the node, after the scheduler has chosen the devices. A mistake "
    "keeps the pod in ContainerCreating.",
    bad=_example('device.attribute["dra.net"].rdma'),
    good=_example('device.attributes["dra.net"].rdma'),
)
def device_parameters(context: Context) -> Iterator[Finding]:
    for obj in context.manifests.objects:
        if obj.kind == "DeviceClass":
            yield from _wrong_expressions(obj, ("spec",))
    for claim in context.manifests.claims:
        yield from _wrong_expressions(claim.owner, (*claim.base, "devices"))
        yield from _wrong_for_devices(context, claim)


def _wrong_expressions(obj: Object, base: FieldPath) -> Iterator[Finding]:
    for i, raw in enumerate(as_list(get_path(obj.data, *base, "config"))):
        entries = as_list(get_path(_parameters(raw), "perDevice"))
        for j, entry in enumerate(entries):
            match = as_dict(entry).get("match")
            if isinstance(match, str) and match and (problem := _compile_problem(match)):
                yield finding(obj, (*base, "config", i, "opaque", "parameters", "perDevice", j, "match"), problem, _FIX)


def _compile_problem(match: str) -> str:
    try:
        compile_match(match)
    except InvalidInput as error:
        return str(error)
    return ""


def _parameters(raw: object) -> Mapping[str, Any]:
    opaque = as_dict(as_dict(raw).get("opaque"))
    return as_dict(opaque.get("parameters")) if opaque.get("driver") == DRIVER_NAME else {}


def _wrong_for_devices(context: Context, claim: Claim) -> Iterator[Finding]:
    """Problems of each request's candidates, and names and tables that two NICs of one node share."""
    names: dict[tuple[str, str, object], dict[str, int]] = defaultdict(dict)
    for request in claim.requests:
        layers = list(_layers(context, claim, request))
        if not any(layer.per_device for layer in layers):
            continue
        problems: dict[str, None] = {}
        for unit in _nics(context.candidates(request)):
            try:
                for what, value in _distinct(unit, layers):
                    names[unit.node, what, value][unit.name] = _most(request)
            except InvalidInput as error:
                problems.setdefault(f"device {unit.name}: {error}")
        for message in list(problems)[:1]:
            yield finding(claim.owner, request.path, message, _FIX)
    for (_, what, value), units in list(names.items()):
        if len(units) > 1 and max(units.values()) > 1:
            devices = ", ".join(sorted(units)[:3])
            message = f"{what} {value} is used for several NICs of one node ({devices}); the pod can get two of them"
            yield finding(claim.owner, (*claim.base, "devices"), message, _FIX)
            return


def _most(request: Request) -> int:
    """How many devices of a request one pod gets at most; 2 stands for more than one."""
    return 2 if request.mode == "All" else request.count


def _layers(context: Context, claim: Claim, request: Request) -> Iterator[NetworkConfig]:
    """What the claim and then its class set, as far as it is valid."""
    mine = [config for config in claim.configs if claim.constrained(request, config)]
    of_class = as_list(get_path(context.manifests.classes.get(request.device_class, {}), "spec", "config"))
    for raw in (*mine, *of_class):
        if parameters := _parameters(raw):
            config, problems = parse_leniently(parameters)
            if not problems:
                yield config


def _nics(units: Iterable[PublishedDevice]) -> list[PublishedDevice]:
    return [unit for unit in units if unit.driver == DRIVER_NAME]


def _distinct(unit: PublishedDevice, layers: Iterable[NetworkConfig]) -> Iterator[tuple[str, object]]:
    """What two NICs of a pod cannot share: the name of the interface and the table of its rail."""
    attributes = {name: attribute_from_api(raw) for name, raw in as_dict(unit.raw.get("attributes")).items()}
    config = merge(*(resolve(layer, attributes, 0, device_matches) for layer in layers))
    if config.link.name is not UNSET:
        yield "the interface name", config.link.name
    if config.rail_routing is not UNSET:
        yield "the routing table", rail_table(config, attributes.get(RAIL))
