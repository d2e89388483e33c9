"""From picks to the allocation written into a claim's status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dranet.scheduler.allocation.requests import Fatal, Request
from dranet.scheduler.allocation.rules import Rules
from dranet.scheduler.allocation.search import Pick


def claim_result(
    claim: Mapping[str, Any],
    picks: Sequence[Pick],
    chosen: Sequence[Request],
    node: str,
    rules: Rules,
    shares: Iterator[int],
) -> dict[str, Any]:
    """One AllocationResult in v1 shape; empty parts are left out. `chosen` is the used alternative of each request,
    and `shares` numbers the shares of all claims."""
    devices: dict[str, Any] = {}
    results = [_device_result(pick, rules, shares) for pick in picks]
    if results:
        devices["results"] = results
    config = _config(claim, chosen, rules)
    if config:
        devices["config"] = config
    result: dict[str, Any] = {"devices": devices}
    selector = _node_selector(picks, node, claim)
    if selector is not None:
        result["nodeSelector"] = selector
    return result


def _device_result(pick: Pick, rules: Rules, shares: Iterator[int]) -> dict[str, Any]:
    driver, pool, device = pick.device.id
    result: dict[str, Any] = {"request": pick.request.full_name, "driver": driver, "pool": pool, "device": device}
    if pick.request.admin:
        result["adminAccess"] = True
    if pick.request.tolerations:
        result["tolerations"] = list(pick.request.tolerations)
    if rules.binding_conditions:
        for field in ("bindingConditions", "bindingFailureConditions"):
            if pick.device.raw.get(field):
                result[field] = list(pick.device.raw[field])
    if rules.checks_node_operations and pick.device.owner.skips:
        result["skipNodeOperations"] = list(pick.device.owner.skips)
    if pick.amounts is not None:
        # The scheduler uses random ones.
        result["shareID"] = f"00000000-0000-4000-8000-{next(shares):012d}"
        if pick.amounts:
            result["consumedCapacity"] = {name: str(amount) for name, amount in sorted(pick.amounts.items())}
    return result


def _config(claim: Mapping[str, Any], chosen: Sequence[Request], rules: Rules) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    first_of_class: dict[str, list[dict[str, Any]]] = {}
    for request in chosen:
        assert request.class_ is not None
        known = first_of_class.get(request.class_name)
        if known is not None:
            for entry in known:
                entry["requests"].append(request.full_name)
            continue
        own = [
            {"source": "FromClass", "requests": [request.full_name], **config}
            for config in (request.class_.get("spec") or {}).get("config") or ()
        ]
        first_of_class[request.class_name] = own
        entries += own
    for config in claim["spec"]["devices"].get("config") or ():
        entries += _claim_config(config, chosen, rules)
    if rules.config_once:
        for entry in entries:
            if all(_names(request, entry.get("requests") or ()) for request in chosen):
                entry.pop("requests", None)
    return entries


def _names(request: Request, names: Sequence[str]) -> bool:
    return not names or request.base in names or (request.parent is not None and request.full_name in names)


def _claim_config(config: Mapping[str, Any], chosen: Sequence[Request], rules: Rules) -> list[dict[str, Any]]:
    """Up to 1.36 a configuration appears once for every request it names."""
    entry = {"source": "FromClaim", **config}
    names = config.get("requests") or ()
    if not names:
        entry.pop("requests", None)
        return [entry]
    matching = [request for request in chosen if _names(request, names)]
    return [dict(entry) for _ in (matching[:1] if rules.config_once else matching)]


def _node_selector(picks: Sequence[Pick], node: str, claim: Mapping[str, Any]) -> dict[str, Any] | None:
    fields: list[dict[str, Any]] = []
    expressions: list[dict[str, Any]] = []
    for pick in picks:
        owner, raw = pick.device.owner, pick.device.raw
        name = raw.get("nodeName") if owner.per_device else owner.node_name
        selector = raw.get("nodeSelector") if owner.per_device else owner.node_selector
        if name is not None or pick.device.binds_to_node:
            requirement = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
        terms = (selector or {}).get("nodeSelectorTerms") or ()
        if len(terms) > 1:
            name = (claim.get("metadata") or {}).get("name", "")
            raise Fatal(
                f"create NodeSelector for claim {name}: unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            _merge(fields, term.get("matchFields") or ())
            _merge(expressions, term.get("matchExpressions") or ())
    term = {key: value for key, value in (("matchExpressions", expressions), ("matchFields", fields)) if value}
    return {"nodeSelectorTerms": [term]} if term else None


def _merge(known: list[dict[str, Any]], more: Sequence[Mapping[str, Any]]) -> None:
    for requirement in more:
        if not any(_same(requirement, other) for other in known):
            known.append(dict(requirement))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    parts = [(req["key"], req.get("operator"), frozenset(req.get("values") or ())) for req in (one, other)]
    return parts[0] == parts[1]
