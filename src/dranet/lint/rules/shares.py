"""Shares of cards: what no card can give, and what the driver would refuse."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.lint.rules.base import ERROR, Context, Finding, finding, rule
from dranet.lint.rules.examples import claim_example
from dranet.manifests.claim_views import Claim, Request
from dranet.manifests.workloads import mapping, reach, sequence
from dranet.manifests.yaml_nodes import FieldPath
from dranet.model.attributes import BANDWIDTH
from dranet.model.names import DRIVER_NAME
from dranet.model.quantity import Quantity, QuantityError, parse_quantity
from dranet.predict.hardware import Unit

_AMOUNTS: FieldPath = ("capacity", "requests")


@rule(
    "share-of-no-card",
    ERROR,
    "A share that no card can give",
    why="A request that names a capacity is served only by devices that have it under this very name, and have as "
    "much: the pod stays pending.",
    bad=claim_example(
        """
        requests:
        - name: nic
          exactly:
            deviceClassName: dranet
            capacity: {requests: {bandwidth: 10G}}
        """
    ),
    good=claim_example(
        """
        requests:
        - name: nic
          exactly:
            deviceClassName: dranet
            capacity: {requests: {dra.net/bandwidth: 10G}}
        """
    ),
)
def share_of_no_card(context: Context) -> Iterator[Finding]:
    for claim in context.world.claims:
        for request in claim.requests:
            for name, raw in mapping(reach(request.fields, _AMOUNTS)).items():
                where = (*request.path, *_AMOUNTS, name)
                if name == BANDWIDTH.rpartition("/")[2]:
                    message = f"no card has a capacity {name!r}: names are compared letter by letter"
                    yield finding("share-of-no-card", claim.owner, where, message, f"write {BANDWIDTH}")
                elif name == BANDWIDTH and (found := _too_much(context.candidates(request), raw)):
                    yield finding("share-of-no-card", claim.owner, where, *found)


def _too_much(units: list[Unit], raw: object) -> tuple[str, str] | None:
    """Message and fix where none of the devices has as much; nothing where nobody said which devices there are."""
    wanted = _quantity(raw)
    offered = [_quantity(reach(unit.raw, ("capacity", BANDWIDTH, "value"))) for unit in units]
    known = [amount for amount in offered if amount is not None]
    if not units or wanted is None or any(amount.compare(wanted) >= 0 for amount in known):
        return None
    if not known:
        return f"none of the {len(units)} cards this may get is shared", "start the driver with --shared-cards"
    most = max(known, key=lambda amount: amount.value)
    return f"{wanted} wanted, and the largest card has {most}", f"ask for at most {most}"


def _quantity(raw: object) -> Quantity | None:
    try:
        return None if raw is None else parse_quantity(str(raw))
    except QuantityError:
        return None


@rule(
    "share-moved",
    ERROR,
    "A share of a card that is to be moved",
    why="A card that others have a share of stays on the node, so the driver refuses `type: Passthrough` for a share "
    "and the pod hangs in ContainerCreating.",
    bad=claim_example(
        """
        requests:
        - name: nic
          exactly:
            deviceClassName: dranet
            capacity: {requests: {dra.net/bandwidth: 10G}}
        config:
        - opaque: {driver: dra.net, parameters: {interface: {type: Passthrough}}}
        """
    ),
    good=claim_example(
        """
        requests:
        - name: nic
          exactly:
            deviceClassName: dranet
            capacity: {requests: {dra.net/bandwidth: 10G}}
        config:
        - opaque: {driver: dra.net, parameters: {interface: {type: IPVLAN, addresses: [10.50.0.11/24]}}}
        """
    ),
)
def share_moved(context: Context) -> Iterator[Finding]:
    for claim in context.world.claims:
        for request in claim.requests:
            for where in _moved(claim, request) if BANDWIDTH in mapping(reach(request.fields, _AMOUNTS)) else ():
                message = f"request {request.name} asks for a share, and a share cannot be moved into the pod"
                fix = "write IPVLAN or Macvlan, or leave the capacity out for a whole card"
                yield finding("share-moved", claim.owner, where, message, fix)


def _moved(claim: Claim, request: Request) -> Iterator[FieldPath]:
    base: FieldPath = (*claim.base, "devices", "config")
    for i, raw in enumerate(sequence(reach(claim.owner.data, base))):
        opaque = mapping(mapping(raw).get("opaque"))
        kind = reach(mapping(opaque.get("parameters")), ("interface", "type"))
        if opaque.get("driver") == DRIVER_NAME and kind == "Passthrough" and claim.constrained(request, mapping(raw)):
            yield (*base, i, "opaque", "parameters", "interface", "type")
