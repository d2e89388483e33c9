"""etcd next to the API server: how large it is, and what an operator does when it is full. By its own HTTP gateway."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

FILLER = "/fleet-filler/"
AFTER_FILLER = "/fleet-filler0"
PIECE = 1_000_000


class Etcd:
    """One member, without authentication, as the bed starts it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def bytes_in_use(self) -> int:
        """What its objects and their history take, without what a defragmentation would give back."""
        return int(self._metric("etcd_mvcc_db_total_size_in_use_in_bytes"))

    def bytes_on_disk(self) -> int:
        """What counts against the quota."""
        return int(self._metric("etcd_mvcc_db_total_size_in_bytes"))

    def fill(self) -> int:
        """Write until there is no more space: from then on every write of the cluster is refused. Pieces written."""
        value = base64.b64encode(b"x" * PIECE).decode()
        for number in range(100_000):
            try:
                self._post("kv/put", {"key": _key(f"{FILLER}{number:06}"), "value": value})
            except urllib.error.HTTPError as error:
                if "space exceeded" not in error.read().decode():
                    raise
                return number
        raise AssertionError("etcd has no quota")

    def free(self) -> None:
        """What the operator does: delete, compact, defragment, take the alarm back."""
        gone = self._post("kv/deleterange", {"key": _key(FILLER), "range_end": _key(AFTER_FILLER)})
        self._post("kv/compaction", {"revision": gone["header"]["revision"], "physical": True})
        self._post("maintenance/defragment", {})
        for alarm in self._post("maintenance/alarm", {"action": "GET"}).get("alarms") or ():
            self._post("maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    def _metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._url}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def _key(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
