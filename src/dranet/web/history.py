"""The last hour in memory: what came, went and broke, and how much of it every minute.

Bounded twice, by time and by number; what the number drops is counted and told. It begins when the cluster has been
read for the first time: what was there before us is no news. Times are those at which we noticed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

View = Mapping[str, Any]
HOUR = timedelta(hours=1)
EVENTS = 2000
PLACED, LEFT, FAULT, WELL, OTHER = "placed", "left", "fault", "well", "other"


class Happening(NamedTuple):
    """One line of the history."""

    at: datetime
    kind: str
    about: str
    text: str


class History:
    """Happenings of the last hour, newest last, and their number by minute."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC), events: int = EVENTS) -> None:
        self._now = now
        self._most = events
        self._happenings: deque[Happening] = deque()
        self._minutes: dict[datetime, Counter[str]] = {}
        self._dropped: Counter[datetime] = Counter()
        """By minute, how many were too many."""
        self._since: datetime | None = None

    def begin(self) -> None:
        """From now on changes are news; a second call does nothing."""
        self._since = self._since or self._now()

    def holder(self, key: str, old: View | None, new: View | None) -> None:
        """A pod or claim before and after."""
        self._note(key, _of_holder(old, new))

    def node(self, name: str, old: View | None, new: View | None, layouts: View) -> None:
        """A machine before and after; what its devices are called stands in its layout."""
        self._note(name, _of_node(old, new, layouts))

    def told(self) -> dict[str, Any]:
        """As the page gets it: newest first."""
        self._forget()
        since = self._since and max(self._since, self._now() - HOUR)
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
        self._forget()

    def _forget(self) -> None:
        end = self._now() - HOUR
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
        yield FAULT, "has a misplaced card"
    if new is not None and new.get("measured") and new["measured"] != (old or {}).get("measured"):
        yield OTHER, f"measured {new['measured']} GB/s"
    if old is not None and new is not None and old["phase"] != new["phase"]:
        yield FAULT if new["phase"] == "Failed" else OTHER, f"{old['phase']}, then {new['phase']}"


def _of_node(old: View | None, new: View | None, layouts: View) -> Iterator[tuple[str, str]]:
    if old is None or new is None:
        yield (OTHER, "is here") if old is None else (FAULT, "publishes nothing any more")
        return
    was, now = _taints(old, layouts), _taints(new, layouts)
    yield from ((FAULT, f"{device}: {taint}") for device, taint in sorted(now - was))
    yield from ((WELL, f"{device}: no longer {taint}") for device, taint in sorted(was - now))
    if old.get("problem") != new.get("problem"):
        yield (FAULT, new["problem"]) if new.get("problem") else (WELL, f"no longer: {old['problem']}")
    if old["layout"] != new["layout"]:
        yield OTHER, "has other devices than before"


def _taints(view: View, layouts: View) -> set[tuple[str, str]]:
    devices = layouts[view["layout"]]["devices"]
    return {(devices[entry["at"]]["label"], taint) for entry in view.get("tainted", ()) for taint in entry["taints"]}
