"""Rows of the store: read one by one, so that one that cannot be read spoils nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from dranet.driver.records import plan as plans
from dranet.driver.records.plan import ClaimPlan, UnreadablePlan


class Row(NamedTuple):
    """One claim as it stands in the file."""

    uid: str
    pod_uid: str
    raw: bytes


class Unreadable(NamedTuple):
    """A row that this driver can make nothing of, with what can still be told from it."""

    pod_uid: str
    reason: str
    devices: Mapping[str, Mapping[str, Any]] = {}
    """The snapshots of its devices by name, where at least those can be read: they are not to be given to others."""


def read_rows(
    rows: Iterable[Row], check: Callable[[ClaimPlan], None]
) -> tuple[dict[str, ClaimPlan], dict[str, Unreadable]]:
    """The plans, and the rows that are none; `check` refuses what it does not understand with UnreadablePlan."""
    found: dict[str, ClaimPlan] = {}
    lost: dict[str, Unreadable] = {}
    for row in rows:
        try:
            plan = plans.decode(row.raw)
            check(plan)
            found[row.uid] = plan
        except UnreadablePlan as error:
            lost[row.uid] = Unreadable(row.pod_uid, str(error), _devices(row.raw))
    return found, lost


class _Device(msgspec.Struct):
    device: str
    snapshot: dict[str, Any] = {}
    use: str = ""


class _Devices(msgspec.Struct):
    devices: list[_Device] = []


def _devices(raw: bytes) -> dict[str, Mapping[str, Any]]:
    try:
        held = [device for device in msgspec.json.decode(raw, type=_Devices).devices if device.use != "admin"]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {device.device: device.snapshot for device in held}
