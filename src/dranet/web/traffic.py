"""What goes through the cards that pods have, as the driver of their node counts it: the API server does not know.

A driver is asked while somebody looks at its machine and at no other time, through the API server's proxy and with the
rights of who runs the page (`get pods/proxy`). It answers with the counters of its last look and the time of that, so
rates are right however often it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dranet.kube.client import KubeClient
from dranet.kube.errors import Forbidden, KubeError
from dranet.kube.resources import PODS
from dranet.model.errors import InvalidInput, NotFound

DRIVER_LABEL = "app.kubernetes.io/name=dranet"
DEFAULT_PORT = 9177
_WHEN = "dranet_driver_cards_read_time_seconds"
_READ_TIME = re.compile(rf"^{_WHEN} (\S+)$", re.MULTILINE)
_SERIES = re.compile(r"^dranet_driver_card_(bytes|errors|drops|congestion)_total\{(.*)\} (\d+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Traffic:
    """Asks the drivers of a cluster; remembers where each of them answers."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._ways: dict[str, str] = {}

    async def of(self, node: str) -> dict[str, Any]:
        """The counters of the node's claimed cards; raises in words for people where its driver cannot be asked."""
        try:
            way = self._ways.get(node) or await self._find(node)
            text = await self._client.text(way)
        except Forbidden as error:
            hint = "the account of the page may not ask the driver (docs/page.md#throughput)"
            raise InvalidInput(f"{hint}: {error.message}") from error
        except KubeError as error:
            self._ways.pop(node, None)  # its pod may have been replaced
            raise InvalidInput(f"the driver of {node} does not answer: {error}") from error
        self._ways[node] = way
        return counted(text)

    async def _find(self, node: str) -> str:
        pods, _ = await self._client.list(PODS, fields=f"spec.nodeName={node}", labels=DRIVER_LABEL)
        for pod in pods:
            if (pod.get("status") or {}).get("phase") == "Running":
                meta = pod["metadata"]
                return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{_port(pod)}/proxy/metrics"
        raise NotFound(f"no pod with the label {DRIVER_LABEL} runs on {node}")


def counted(text: str) -> dict[str, Any]:
    """What /metrics tells of claimed cards: bytes by direction and path, everything else by the counter's name."""
    read = _READ_TIME.search(text)
    if read is None:
        older = "the driver does not tell when it read its cards: it is older than this page"
        raise InvalidInput("the driver has no PCI or RDMA card to count on" if f"# TYPE {_WHEN} " in text else older)
    cards: dict[tuple[str, str, str], dict[str, Any]] = {}
    for family, whose, name, value in _series(text):
        card = cards.setdefault(whose, {"errors": {}, "drops": {}, "congestion": {}, "receive": {}, "transmit": {}})
        card[family][name] = value
    named = [
        {"device": device, "claim": f"{namespace}/{claim}", **card}
        for (device, namespace, claim), card in sorted(cards.items())
    ]
    return {"at": float(read.group(1)), "cards": named}


def _series(text: str) -> Iterator[tuple[str, tuple[str, str, str], str, int]]:
    for family, written, value in _SERIES.findall(text):
        labels = dict(_LABEL.findall(written))
        whose = labels["device"], labels["namespace"], labels["claim"]
        if family == "bytes":
            yield labels["direction"], whose, labels["path"], int(value)
        else:
            yield family, whose, labels["counter"], int(value)


def _port(pod: dict[str, Any]) -> int:
    """Where the kubelet asks whether the driver is ready is where it answers."""
    for container in pod["spec"].get("containers") or ():
        port = ((container.get("readinessProbe") or {}).get("httpGet") or {}).get("port")
        if isinstance(port, int):
            return port
    return DEFAULT_PORT
