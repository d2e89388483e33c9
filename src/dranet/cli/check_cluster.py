"""``dranet check --cluster``: every node by what it published, and a label on each node where that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dranet.health.judging import Expected, Look, judge
from dranet.health.node import expected_of
from dranet.health.policy import Policy
from dranet.health.published import devices_by_node, pci_addresses, published_cards
from dranet.health.report import Report
from dranet.kube.client import KubeClient
from dranet.kube.config import load_config
from dranet.kube.resources import NODES, RESOURCE_SLICES
from dranet.model.names import DRIVER_NAME
from dranet.topology.shape import Shape

LABEL = "dranet.net/network-healthy"
PAGE = 100


async def fetch(kubeconfig: str, context: str, node: str) -> list[Mapping[str, Any]]:
    """The slices of our driver, of one node or of all."""
    fields = f"spec.driver={DRIVER_NAME}" + (f",spec.nodeName={node}" if node else "")
    async with KubeClient.from_config(load_config(kubeconfig or None, context=context or None)) as client:
        return [one async for page, _ in client.pages(RESOURCE_SLICES, fields=fields, limit=PAGE) for one in page]


def reports(slices: Iterable[Mapping[str, Any]], shape: Shape | None, policy: Policy) -> list[Report]:
    """A report a node, in order of their names."""
    found = []
    for node, devices in devices_by_node(slices).items():
        cards = published_cards(devices)
        expected = expected_of(shape, pci_addresses(devices)) if shape else Expected()
        found.append(Report(node, cards, judge(Look(cards, expected=expected), policy), policy))
    return found


async def mark(kubeconfig: str, context: str, healthy: Mapping[str, bool]) -> None:
    """Label each node with the verdict; whoever runs this needs the right to patch nodes."""
    async with KubeClient.from_config(load_config(kubeconfig or None, context=context or None)) as client:
        for node, well in healthy.items():
            await client.merge_patch(NODES, node, {"metadata": {"labels": {LABEL: "true" if well else "false"}}})
