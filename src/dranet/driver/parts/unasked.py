"""What a pod may change on its card although its claim did not ask: put back, so that the next one finds nothing.

Offloads, rings, channels, coalescing, pauses and private flags stay with a card wherever it goes, and so do XDP and TCX
programs. Queueing disciplines the kernel forgets with every move, also those that an administrator has put there. So
all of it is read before the card moves and compared when it is home. What cannot be read is left alone.

Prepare decides nothing by it, and eight cards are 65 questions, most of which wait for the kernel's one lock: so the
kubelet is not kept waiting for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from dranet.driver.namespaces import Host
from dranet.driver.parts.base import Part, Problems
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.parts.tuning import detach_bpf
from dranet.driver.records.plan import DevicePlan, DisciplineRow, Unasked, Use
from dranet.kernel.codec import Message
from dranet.kernel.errors import KernelError
from dranet.kernel.ethtool import Look
from dranet.kernel.links import Link
from dranet.kernel.traffic import tc
from dranet.kernel.traffic.tc import Discipline

log = logging.getLogger(__name__)

T = TypeVar("T")


class UnaskedPart(Part[Unasked]):
    """Remembers a card's settings and puts them back. They stand with the card as it was found: a driver that does not
    know them goes on without."""

    tag, place, record = "unasked", 25, Unasked

    def of(self, device: DevicePlan) -> Unasked | None:
        return device.found.unasked if device.found and device.use is Use.MOVED else None

    def keep(self, device: DevicePlan, record: Unasked) -> DevicePlan:
        assert device.found is not None
        return msgspec.structs.replace(device, found=msgspec.structs.replace(device.found, unasked=record))

    def is_noted(self, device: DevicePlan) -> bool:
        return device.found is None or device.use is not Use.MOVED or device.found.unasked is not None

    def note(self, host: Host, tables: HostTables, device: DevicePlan, card: Link) -> DevicePlan:
        if self.is_noted(device):
            return device
        xdp = [program.id for program in card.xdp_programs]
        look = _unless_refused(lambda: tables.looks(host, card.index))
        return self.keep(
            device,
            Unasked(
                features=look.chosen if look else None,
                private_flags=look.private_flags if look else None,
                tables=_by_text(look.tables) if look else None,
                disciplines=_unless_refused(lambda: _disciplines(tables, card.index)),
                programs=_unless_refused(lambda: _programs(host, tables, card.index, xdp)),
            ),
        )

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, card: Link | None) -> Problems:
        was = self.of(device)
        assert was is not None
        if card is None:
            return []
        problems: list[str] = []
        for put_back in (_put_back_ethtool, _put_back_programs):
            try:
                problems += put_back(host, tables, card, was)
            except (KernelError, OSError) as error:
                problems.append(f"{device.name}: {error}")
        answers = yield _discipline_messages(tables, card.index, was)
        return problems + [str(error) for error in answers if error is not None]


def _unless_refused(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (KernelError, OSError) as error:
        log.info("a setting of a card cannot be read, and will not be put back: %s", error)
        return None


def _by_text(tables: Mapping[str, Mapping[int, bytes]]) -> dict[str, dict[str, bytes]]:
    """JSON has no numbers for keys."""
    return {table: {str(kind): value for kind, value in values.items()} for table, values in tables.items()}


def _put_back_ethtool(host: Host, tables: HostTables, card: Link, was: Unasked) -> list[str]:
    if was.features is None or was.tables is None:
        return []
    # Cards of one kind have the same settings, and many have few: only those are asked for again.
    now = tables.looks(host, card.index, ("features", *(["flags"] if was.private_flags else []), *was.tables))
    changes = _changed_features(now, was.features)
    flags = was.private_flags if was.private_flags and was.private_flags != now.private_flags else {}
    values = {name: changed for name in was.tables if (changed := _changed(now.tables.get(name), was.tables[name]))}
    if not changes and not flags and not values:
        return []
    ethtool = host.ethtool
    steps: list[Callable[[], None]] = [
        *([lambda: ethtool.set_features(card.index, changes)] if changes else []),
        *([lambda: ethtool.set_private_flags(card.index, flags)] if flags else []),
        *(partial(ethtool.set_table, card.index, name, changed) for name, changed in values.items()),
    ]
    return [problem for step in steps for problem in _tried(step)]


def _tried(step: Callable[[], None]) -> list[str]:
    try:
        step()
    except KernelError as error:
        return [str(error)]
    return []


def _changed_features(now: Look, on: Sequence[str]) -> dict[str, bool]:
    if now.chosen == on:
        return {}
    free = {name: feature for name, feature in now.features.items() if feature.changeable}
    return {name: name in on for name, feature in free.items() if feature.wanted != (name in on)}


def _changed(now: Mapping[int, bytes] | None, was: Mapping[str, bytes]) -> dict[int, bytes]:
    if now is None:
        return {}
    return {int(kind): value for kind, value in was.items() if now.get(int(kind)) != value}


def _programs(host: Host, tables: HostTables, index: int, xdp: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({*xdp, *(one.program_id for one in tables.programs(host, index))}))


def _put_back_programs(host: Host, tables: HostTables, card: Link, was: Unasked) -> list[str]:
    """All go where one is foreign: a program between those of the administrator changes what they see."""
    if was.programs is None:
        return []
    now = _programs(host, tables, card.index, [program.id for program in card.xdp_programs])
    if set(now) <= set(was.programs):
        return []
    detach_bpf(host, card)
    gone = sorted(set(was.programs) & set(now))
    return [f"the BPF programs {gone} of {card.name} went with those of the pod; attach them again"] if gone else []


def _disciplines(tables: HostTables, index: int) -> tuple[DisciplineRow, ...]:
    return tuple(
        DisciplineRow(parent=one.parent, handle=one.handle, kind=one.kind, options=one.options)
        for one in tables.disciplines
        if one.index == index
    )


def _discipline_messages(tables: HostTables, index: int, was: Unasked) -> list[Message]:
    """Those of the pod go first: one may be in the place of another."""
    if was.disciplines is None:
        return []
    now = _disciplines(tables, index)
    foreign = [one for one in now if one not in was.disciplines]
    missing = [one for one in was.disciplines if one not in now]
    return [*(tc.remove(_on(index, one)) for one in foreign), *(tc.put(_on(index, one)) for one in missing)]


def _on(index: int, row: DisciplineRow) -> Discipline:
    return Discipline(index=index, parent=row.parent, handle=row.handle, kind=row.kind, options=row.options)


PART = UnaskedPart()
