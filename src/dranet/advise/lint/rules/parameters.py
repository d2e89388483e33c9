"""Parameters and shares that our driver rejects when the pod starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dranet.advise.lint.rules.base import (
    ERROR,
    WARNING,
    Context,
    Finding,
    claim_example,
    config_example,
    finding,
    request_example,
    rule,
)
from dranet.advise.manifests import Claim, FieldPath, Object, Request
from dranet.advise.plan.hardware import PublishedDevice
from dranet.core.attributes import BANDWIDTH
from dranet.core.errors import Problem
from dranet.core.names import DRIVER_NAME
from dranet.core.netconfig_parse import administrator_fields, parse_leniently
from dranet.core.quantity import Quantity, QuantityError, parse_quantity
from dranet.core.untyped import as_dict, as_list, get_path

_ADMINISTRATORS = "only a DeviceClass or a profile may set this, not a claim, unless the driver has --trust-claims"


def _opaque_configs(obj: Object, base: FieldPath) -> Iterator[tuple[FieldPath, str, Any]]:
    for i, raw in enumerate(as_list(get_path(obj.data, *base, "config"))):
        opaque = as_dict(as_dict(raw).get("opaque"))
        yield (*base, "config", i, "opaque"), str(opaque.get("driver", "")), opaque.get("parameters")


@rule(
    "driver-parameters",
    ERROR,
    "Parameters that the driver rejects",
    why="The claim is allocated, but the driver rejects its parameters: the pod stays in ContainerCreating.",
    bad=claim_example(request_example(), config=config_example(nam="dranet0", mtu=9)),
    good=claim_example(request_example(), config=config_example(name="dranet0", mtu=9000)),
)
def driver_parameters(context: Context) -> Iterator[Finding]:
    for obj, base in _configured(context):
        for path, driver, parameters in _opaque_configs(obj, base):
            if driver == DRIVER_NAME and parameters is not None:
                config, problems = parse_leniently(json.dumps(parameters, default=str))
                if obj.kind != "DeviceClass":
                    problems += [Problem(field, _ADMINISTRATORS) for field in administrator_fields(config)]
                for problem in problems:
                    where = (*path, "parameters", *_steps(problem.path))
                    yield finding(obj, where, str(problem), "see docs/reference/parameters.md")


def _configured(context: Context) -> Iterator[tuple[Object, FieldPath]]:
    for obj in context.manifests.objects:
        if obj.kind == "DeviceClass":
            yield obj, ("spec",)
    for claim in context.manifests.claims:
        yield claim.owner, (*claim.base, "devices")


def _steps(path: str) -> FieldPath:
    """``routes[0].gateway`` as a field path."""
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
    "One interface name for several NICs",
    why="Two interfaces of a pod cannot have the same name, so the second NIC cannot be attached.",
    bad=claim_example(request_example("nics", count=2), config=config_example(name="dranet0"), name="nics"),
    good=claim_example(
        request_example("nic-0"),
        request_example("nic-1"),
        config=config_example(request="nic-0", name="dranet0") + config_example(request="nic-1", name="dranet1"),
        name="nics",
    ),
)
def one_name_many_cards(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        for i, config in enumerate(claim.configs):
            name = interface_name(config)
            nics = sum(_count(request) for request in _covered(claim, config) if _may_be_nic(context, request))
            if name and nics > 1:
                where = (*claim.base, "devices", "config", i, "opaque", "parameters", "interface", "name")
                message = f"{nics} NICs of the pod would get the name {name!r}"
                fix = "write one request and one config for each NIC, or remove the name"
                yield finding(claim.owner, where, message, fix)


def interface_name(config: dict[str, Any]) -> str:
    """The interface name that a config sets, or an empty string."""
    opaque = as_dict(config.get("opaque"))
    if opaque.get("driver") != DRIVER_NAME:
        return ""
    name = as_dict(as_dict(opaque.get("parameters")).get("interface")).get("name")
    return name if isinstance(name, str) else ""


def _covered(claim: Claim, config: dict[str, Any]) -> list[Request]:
    """Requests that the config applies to; of alternatives only the first, because only one is allocated."""
    covered = [request for request in claim.requests if claim.constrained(request, config)]
    return list({request.parent: request for request in reversed(covered)}.values())


def _count(request: Request) -> int:
    return 2 if request.mode == "All" else request.count


def _may_be_nic(context: Context, request: Request) -> bool:
    expressions = [
        str(as_dict(as_dict(raw).get("cel")).get("expression", ""))
        for raw in as_list(
            as_dict(context.manifests.classes.get(request.device_class, {}).get("spec")).get("selectors")
        )
    ]
    return any(DRIVER_NAME in text for text in expressions)


@rule(
    "config-of-no-request",
    WARNING,
    "Parameters for a driver whose devices no request selects",
    why="Parameters are delivered by driver name: `dra.net` does not get those of `dranet`.",
    bad=claim_example(request_example(), config=config_example(driver="dranet", name="dranet0")),
    good=claim_example(request_example(), config=config_example(name="dranet0")),
)
def config_of_no_request(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        named = [context.manifests.classes.get(request.device_class) for request in claim.requests]
        texts = " ".join(repr(as_dict(c.get("spec")).get("selectors")) for c in named if c is not None)
        if None in named or "device.driver" not in texts:
            continue
        for path, driver, _ in _opaque_configs(claim.owner, (*claim.base, "devices")):
            if driver and driver not in texts:
                message = f"no DeviceClass of this claim selects devices of driver {driver!r}"
                fix = (
                    f"write driver: {DRIVER_NAME}"
                    if DRIVER_NAME in texts
                    else "write the name of the driver that owns the devices"
                )
                yield finding(claim.owner, (*path, "driver"), message, fix)


_AMOUNTS: FieldPath = ("capacity", "requests")
_SHARE = request_example(capacity=f"{{requests: {{{BANDWIDTH}: 10G}}}}")


@rule(
    "share-of-no-card",
    ERROR,
    "A share that no NIC can provide",
    why="A request with a capacity is allocated only a device that publishes this capacity under exactly this name, "
    "and enough of it. Otherwise the pod stays pending.",
    bad=claim_example(request_example(capacity="{requests: {bandwidth: 10G}}")),
    good=claim_example(_SHARE),
)
def share_of_no_card(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        for request in claim.requests:
            for name, raw in as_dict(get_path(request.fields, *_AMOUNTS)).items():
                where = (*request.path, *_AMOUNTS, name)
                if name == BANDWIDTH.rpartition("/")[2]:
                    message = f"no device has a capacity {name!r}: the name must match exactly"
                    yield finding(claim.owner, where, message, f"write {BANDWIDTH}")
                elif name == BANDWIDTH and (found := _exceeded(context.candidates(request), raw)):
                    yield finding(claim.owner, where, *found)


def _exceeded(units: list[PublishedDevice], raw: object) -> tuple[str, str] | None:
    """Message and fix if no device has as much; None without hardware."""
    wanted = _quantity(raw)
    offered = [_quantity(get_path(unit.raw, "capacity", BANDWIDTH, "value")) for unit in units]
    known = [amount for amount in offered if amount is not None]
    if not units or wanted is None or any(amount.compare(wanted) >= 0 for amount in known):
        return None
    if not known:
        return f"none of the {len(units)} candidate NICs is shared", "start the driver with --shared-cards"
    most = max(known, key=lambda amount: amount.value)
    return f"{wanted} requested, but the fastest NIC has {most}", f"request at most {most}"


def _quantity(raw: object) -> Quantity | None:
    try:
        return None if raw is None else parse_quantity(str(raw))
    except QuantityError:
        return None


@rule(
    "share-moved",
    ERROR,
    "A share of a NIC with type Passthrough",
    why="A shared NIC stays in the host network namespace, so the driver rejects `type: Passthrough` for a share and "
    "the pod stays in ContainerCreating.",
    bad=claim_example(_SHARE, config=config_example(type="Passthrough")),
    good=claim_example(_SHARE, config=config_example(type="IPVLAN", addresses="[10.50.0.11/24]")),
)
def share_passthrough_configs(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        for request in claim.requests:
            for where in (
                _passthrough_configs(claim, request)
                if BANDWIDTH in as_dict(get_path(request.fields, *_AMOUNTS))
                else ()
            ):
                message = f"request {request.name} is for a share, which cannot be moved into the pod"
                fix = "write IPVLAN or Macvlan, or remove the capacity to get the whole NIC"
                yield finding(claim.owner, where, message, fix)


def _passthrough_configs(claim: Claim, request: Request) -> Iterator[FieldPath]:
    base: FieldPath = (*claim.base, "devices", "config")
    for i, raw in enumerate(as_list(get_path(claim.owner.data, *base))):
        opaque = as_dict(as_dict(raw).get("opaque"))
        kind = get_path(as_dict(opaque.get("parameters")), "interface", "type")
        if opaque.get("driver") == DRIVER_NAME and kind == "Passthrough" and claim.constrained(request, as_dict(raw)):
            yield (*base, i, "opaque", "parameters", "interface", "type")
