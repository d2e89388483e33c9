"""Parameters for our driver: what it would refuse when the pod starts is refused here, before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dranet.lint.rules.base import ERROR, WARNING, Context, Finding, finding, rule
from dranet.lint.rules.examples import claim_example
from dranet.manifests.claim_views import Claim, Request
from dranet.manifests.reading import Object
from dranet.manifests.workloads import mapping, reach, sequence
from dranet.manifests.yaml_nodes import FieldPath
from dranet.model.names import DRIVER_NAME
from dranet.model.netconfig_parse import examine


def _opaque(obj: Object, base: FieldPath) -> Iterator[tuple[FieldPath, str, Any]]:
    for i, raw in enumerate(sequence(reach(obj.data, (*base, "config")))):
        opaque = mapping(mapping(raw).get("opaque"))
        yield (*base, "config", i, "opaque"), str(opaque.get("driver", "")), opaque.get("parameters")


@rule(
    "driver-parameters",
    ERROR,
    "Parameters that the driver refuses",
    why="The claim is allocated, then the pod hangs in ContainerCreating: the driver refuses the parameters.",
    bad=claim_example(
        """
        requests: [{name: nic, exactly: {deviceClassName: dranet}}]
        config:
        - opaque:
            driver: dra.net
            parameters: {interface: {nam: dranet0, mtu: 9}}
        """
    ),
    good=claim_example(
        """
        requests: [{name: nic, exactly: {deviceClassName: dranet}}]
        config:
        - opaque:
            driver: dra.net
            parameters: {interface: {name: dranet0, mtu: 9000}}
        """
    ),
)
def driver_parameters(context: Context) -> Iterator[Finding]:
    for obj, base in _configured(context):
        for path, driver, parameters in _opaque(obj, base):
            if driver == DRIVER_NAME and parameters is not None:
                _, problems = examine(json.dumps(parameters, default=str))
                for problem in problems:
                    where = (*path, "parameters", *_steps(problem.path))
                    yield finding("driver-parameters", obj, where, str(problem), "see docs/reference/parameters.md")


def _configured(context: Context) -> Iterator[tuple[Object, FieldPath]]:
    for obj in context.world.objects:
        if obj.kind == "DeviceClass":
            yield obj, ("spec",)
    for claim in context.world.claims:
        yield claim.owner, (*claim.base, "devices")


def _steps(path: str) -> FieldPath:
    """``routes[0].gateway`` as the steps of a field path."""
    steps: list[str | int] = []
    for part in path.replace("]", "").replace("[", ".#").split("."):
        if part.startswith("#") and part[1:].isdigit():
            steps.append(int(part[1:]))
        elif part:
            steps.append(part)
    return tuple(steps)


@rule(
    "one-name-many-cards",
    ERROR,
    "One interface name for several cards",
    why="Two interfaces of a pod cannot have one name, so the second card cannot be attached.",
    bad=claim_example(
        """
        requests: [{name: nics, exactly: {deviceClassName: dranet, count: 2}}]
        config:
        - opaque:
            driver: dra.net
            parameters: {interface: {name: dranet0}}
        """,
        name="nics",
    ),
    good=claim_example(
        """
        requests:
        - {name: nic-0, exactly: {deviceClassName: dranet}}
        - {name: nic-1, exactly: {deviceClassName: dranet}}
        config:
        - requests: [nic-0]
          opaque: {driver: dra.net, parameters: {interface: {name: dranet0}}}
        - requests: [nic-1]
          opaque: {driver: dra.net, parameters: {interface: {name: dranet1}}}
        """,
        name="nics",
    ),
)
def one_name_many_cards(context: Context) -> Iterator[Finding]:
    for claim in context.world.claims:
        for i, config in enumerate(claim.configs):
            name = interface_name(config)
            cards = sum(_cards(request) for request in _covered(claim, config) if _may_be_card(context, request))
            if name and cards > 1:
                where = (*claim.base, "devices", "config", i, "opaque", "parameters", "interface", "name")
                message = f"the name {name!r} would go to {cards} cards of the pod"
                fix = "give each card a request and a config of its own, or leave the name out"
                yield finding("one-name-many-cards", claim.owner, where, message, fix)


def interface_name(config: dict[str, Any]) -> str:
    """The name a config gives a card inside the pod, or an empty string."""
    opaque = mapping(config.get("opaque"))
    if opaque.get("driver") != DRIVER_NAME:
        return ""
    name = mapping(mapping(opaque.get("parameters")).get("interface")).get("name")
    return name if isinstance(name, str) else ""


def _covered(claim: Claim, config: dict[str, Any]) -> list[Request]:
    """Requests the config applies to; of alternatives only one will be chosen, so the first stands for all."""
    covered = [request for request in claim.requests if claim.constrained(request, config)]
    return list({request.parent: request for request in reversed(covered)}.values())


def _cards(request: Request) -> int:
    return 2 if request.mode == "All" else request.count


def _may_be_card(context: Context, request: Request) -> bool:
    expressions = [
        str(mapping(mapping(raw).get("cel")).get("expression", ""))
        for raw in sequence(mapping(context.world.classes.get(request.device_class, {}).get("spec")).get("selectors"))
    ]
    return any(DRIVER_NAME in text for text in expressions)


@rule(
    "config-of-no-request",
    WARNING,
    "Parameters for a driver that no request uses",
    why="The driver's name is the key: parameters for `dranet` never reach the driver `dra.net`.",
    bad=claim_example(
        """
        requests: [{name: nic, exactly: {deviceClassName: dranet}}]
        config:
        - opaque: {driver: dranet, parameters: {interface: {name: dranet0}}}
        """
    ),
    good=claim_example(
        """
        requests: [{name: nic, exactly: {deviceClassName: dranet}}]
        config:
        - opaque: {driver: dra.net, parameters: {interface: {name: dranet0}}}
        """
    ),
)
def config_of_no_request(context: Context) -> Iterator[Finding]:
    for claim in context.world.claims:
        named = [context.world.classes.get(request.device_class) for request in claim.requests]
        texts = " ".join(repr(mapping(c.get("spec")).get("selectors")) for c in named if c is not None)
        if None in named or "device.driver" not in texts:
            continue
        for path, driver, _ in _opaque(claim.owner, (*claim.base, "devices")):
            if driver and driver not in texts:
                message = f"no class of this claim selects devices of driver {driver!r}"
                fix = f"write driver: {DRIVER_NAME}" if DRIVER_NAME in texts else "name the driver of the devices"
                yield finding("config-of-no-request", claim.owner, (*path, "driver"), message, fix)
