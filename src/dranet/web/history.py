"""Changes of the last hour, in memory: pods placed and deleted, faults, and their numbers by minute.

Limited by time and by number; dropped entries are counted. It starts after the first complete scan of the cluster,
because what existed before is not a change. Times are those of detection.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

View = Mapping[str, Any]
_HOUR = timedelta(hours=1)
EVENTS = 2000
PLACED, LEFT, FAULT, WELL, OTHER = "placed", "left", "fault", "well", "other"


class Happening(NamedTuple):
    """One change."""

    at: datetime
    kind: str
    about: str
    text: str


class History:
    """The changes of the last hour, newest last, and their numbers by minute."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC), events: int = EVENTS) -> None:
        self._now = now
        self._most = events
        self._happenings: deque[Happening] = deque()
        self._minutes: dict[datetime, Counter[str]] = {}
        self._dropped: Counter[datetime] = Counter()
        """Dropped changes by minute."""
        self._since: datetime | None = None

    def begin(self) -> None:
        """Start to record changes; a second call does nothing."""
        self._since = self._since or self._now()

    def holder(self, key: str, old: View | None, new: View | None) -> None:
        """Record the difference between two views of a pod or claim."""
        self._note(key, _of_holder(old, new))

    def node(self, name: str, old: View | None, new: View | None, layouts: View) -> None:
        """Record the difference between two views of a machine; its layout has the names of devices."""
        self._note(name, _of_node(old, new, layouts))

    def to_json(self) -> dict[str, Any]:
        """The changes in the page's format, newest first."""
        self._expire()
        since = self._since and max(self._since, self._now() - _HOUR)
        return {
            "since": since and since.isoformat(timespec="seconds"),
            "dropped": self._dropped.total(),
            "happenings": [
                {"at": one.at.isoformat(timespec="seconds"), "kind": one.kind, "about": one.about, "text": one.text}
                for one in reversed(self._happenings)
            ],
            "minutes": [{"at": at.isoformat(timespec="minutes"), **counts} for at, counts in self._minutes.items()],
        }

    def _note(self, about: str, found: Iterator[tuple[str, str]]) -> None:
        if self._since is None:
            return
        now = self._now()
        for kind, text in found:
            self._happenings.append(Happening(now, kind, about, text))
            self._minutes.setdefault(_minute(now), Counter())[kind] += 1
            if len(self._happenings) > self._most:
                self._dropped[_minute(self._happenings.popleft().at)] += 1
        self._expire()

    def _expire(self) -> None:
        end = self._now() - _HOUR
        while self._happenings and self._happenings[0].at < end:
            self._happenings.popleft()
        self._dropped = Counter({at: number for at, number in self._dropped.items() if at >= end})
        self._minutes = {at: counts for at, counts in self._minutes.items() if at >= end}


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _of_holder(old: View | None, new: View | None) -> Iterator[tuple[str, str]]:
    was, now = (old or {}).get("node", ""), (new or {}).get("node", "")
    if was and was != now:
        yield LEFT, f"left {was}"
    if now and was != now:
        devices = sum(len(claim["devices"]) for claim in (new or {})["claims"])
        yield PLACED, f"placed on {now} with {devices} devices"
    if new is not None and new.get("misplaced") and not (old or {}).get("misplaced"):
        yield FAULT, "has a misplaced NIC"
    if new is not None and new.get("measured") and new["measured"] != (old or {}).get("measured"):
        yield OTHER, f"measured {new['measured']} GB/s"
    if old is not None and new is not None and old["phase"] != new["phase"]:
        yield FAULT if new["phase"] == "Failed" else OTHER, f"phase {old['phase']} -> {new['phase']}"


def _of_node(old: View | None, new: View | None, layouts: View) -> Iterator[tuple[str, str]]:
    if old is None or new is None:
        yield (OTHER, "joined") if old is None else (FAULT, "no longer publishes devices")
        return
    was, now = _taints(old, layouts), _taints(new, layouts)
    yield from ((FAULT, f"{device}: {taint}") for device, taint in sorted(now - was))
    yield from ((WELL, f"{device}: no longer {taint}") for device, taint in sorted(was - now))
    if old.get("problem") != new.get("problem"):
        yield (FAULT, new["problem"]) if new.get("problem") else (WELL, f"no longer: {old['problem']}")
    if old["layout"] != new["layout"]:
        yield OTHER, "has different devices"


def _taints(view: View, layouts: View) -> set[tuple[str, str]]:
    devices = layouts[view["layout"]]["devices"]
    return {(devices[entry["at"]]["label"], taint) for entry in view.get("tainted", ()) for taint in entry["taints"]}
