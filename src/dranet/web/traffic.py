"""Traffic counters of claimed NICs, from the metrics of the node's driver.

They are fetched only while the page shows the machine, through the API server's proxy and with the permissions of the
page's account (`get pods/proxy`). Only pods of a DaemonSet in the driver's namespace are asked: any other pod may have
the driver's label, and would be sent requests with the rights of the page's user. The driver reports its last reading
and its time, so rates do not depend on how often it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dranet.core.errors import InvalidInput, NotFound
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import Forbidden, KubeError
from dranet.kubernetes.api.resources import PODS

_DRIVER_LABEL = "app.kubernetes.io/name=dranet"
DEFAULT_PORT = 9177
_MOST_BYTES = 8 << 20
_WHEN = "dranet_driver_cards_read_time_seconds"
_READ_TIME = re.compile(rf"^{_WHEN} (\S+)$", re.MULTILINE)
_SERIES = re.compile(r"^dranet_driver_card_(bytes|errors|drops|congestion)_total\{(.*)\} (\d+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Traffic:
    """Fetches counters from the drivers of a cluster; caches the path to each."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._paths: dict[str, str] = {}

    async def of(self, node: str) -> dict[str, Any]:
        """The counters of the node's claimed NICs; raises if its driver cannot be reached."""
        try:
            path = self._paths.get(node) or await self._find(node)
            text = await self._client.text(path, limit=_MOST_BYTES)
        except Forbidden as error:
            hint = "the page's account may not read the driver's metrics; see docs/tasks/page.md#throughput"
            raise InvalidInput(f"{hint}: {error.message}") from error
        except KubeError as error:
            self._paths.pop(node, None)  # its pod may have been replaced
            raise InvalidInput(f"cannot read the metrics of the driver on {node}: {error}") from error
        self._paths[node] = path
        return parse_counters(text)

    async def _find(self, node: str) -> str:
        where = f"spec.nodeName={node}"
        pods, _ = await self._client.list(PODS, self._namespace, fields=where, labels=_DRIVER_LABEL)
        for pod in pods:
            if (pod.get("status") or {}).get("phase") == "Running" and _is_of_daemonset(pod):
                name = pod["metadata"]["name"]
                return f"/api/v1/namespaces/{self._namespace}/pods/{name}:{_port(pod)}/proxy/metrics"
        raise NotFound(
            f"no running pod of a DaemonSet with the label {_DRIVER_LABEL} on {node} in namespace {self._namespace}; "
            "--driver-namespace names another one"
        )


def _is_of_daemonset(pod: dict[str, Any]) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)


def parse_counters(text: str) -> dict[str, Any]:
    """The counters of claimed NICs in /metrics: bytes by direction and path, others by the counter's name."""
    read = _READ_TIME.search(text)
    if read is None:
        older = "the driver is older than this page and reports no counters; upgrade it"
        raise InvalidInput(
            "the driver has no PCI or RDMA device with counters" if f"# TYPE {_WHEN} " in text else older
        )
    nics: dict[tuple[str, str, str], dict[str, Any]] = {}
    for family, whose, name, value in _series(text):
        nic = nics.setdefault(whose, {"errors": {}, "drops": {}, "congestion": {}, "receive": {}, "transmit": {}})
        nic[family][name] = value
    named = [
        {"device": device, "claim": f"{namespace}/{claim}", **nic}
        for (device, namespace, claim), nic in sorted(nics.items())
    ]
    return {"at": float(read.group(1)), "nics": named}


def _series(text: str) -> Iterator[tuple[str, tuple[str, str, str], str, int]]:
    for family, written, value in _SERIES.findall(text):
        labels = dict(_LABEL.findall(written))
        whose = labels["device"], labels["namespace"], labels["claim"]
        if family == "bytes":
            yield labels["direction"], whose, labels["path"], int(value)
        else:
            yield family, whose, labels["counter"], int(value)


def _port(pod: dict[str, Any]) -> int:
    """The port of the readiness probe, which serves the metrics too."""
    for container in pod["spec"].get("containers") or ():
        port = ((container.get("readinessProbe") or {}).get("httpGet") or {}).get("port")
        if isinstance(port, int):
            return port
    return DEFAULT_PORT
