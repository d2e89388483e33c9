"""What a pod may change on its card although its claim did not ask: put back, so that the next one finds nothing.

Offloads, rings, channels, coalescing, pauses and private flags stay with a card wherever it goes, and so do XDP and TCX
programs. Queueing disciplines the kernel forgets with every move, also those that an administrator has put there. So
all of it is read at prepare and compared when the card is home. What cannot be read is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from dranet.driver.namespaces import Host
from dranet.driver.parts.base import Node, Part, Problems
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.parts.tuning import detach_bpf
from dranet.driver.records.plan import DevicePlan, Record
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel import bpf, tc
from dranet.kernel.codec import Message
from dranet.kernel.errors import KernelError
from dranet.kernel.ethtool import Ethtool
from dranet.kernel.links import Link
from dranet.kernel.tc import Discipline
from dranet.model.netconfig import NetworkConfig

log = logging.getLogger(__name__)

T = TypeVar("T")


class DisciplineRow(Record, frozen=True):
    """A queueing discipline as the kernel tells and takes it."""

    parent: int
    handle: int
    kind: str
    options: bytes = b""


class UnaskedRecord(Record, frozen=True):
    """How the card was; None where that could not be read."""

    features: tuple[str, ...] | None = None
    """Those that are wanted, of all that can be changed."""
    private_flags: Mapping[str, bool] | None = None
    tables: Mapping[str, Mapping[str, bytes]] | None = None
    disciplines: tuple[DisciplineRow, ...] | None = None
    programs: tuple[int, ...] | None = None


class UnaskedPart(Part[UnaskedRecord]):
    """Remembers a card's settings and puts them back."""

    tag, place, record = "unasked", 25, UnaskedRecord

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        if device.found is None:
            return device
        host, link = node.host, device.found.link
        xdp = [program.id for program in link.xdp_programs]
        now = _unless_refused(lambda: _read_ethtool(host, link.index)) or UnaskedRecord()
        now = msgspec.structs.replace(
            now,
            disciplines=_unless_refused(lambda: _disciplines(node.tables, link.index)),
            programs=_unless_refused(lambda: _programs(host, link.index, xdp)),
        )
        return self.keep(device, now)

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, card: Link | None) -> Problems:
        was = self.of(device)
        assert was is not None
        if card is None:
            return []
        problems: list[str] = []
        for put_back in (_put_back_ethtool, _put_back_programs):
            try:
                problems += put_back(host, card, was)
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


def _read_ethtool(host: Host, index: int) -> UnaskedRecord:
    with Ethtool(host.namespace.fd) as ethtool:
        features = ethtool.features(index)
        return UnaskedRecord(
            features=tuple(name for name, feature in features.items() if feature.changeable and feature.wanted),
            private_flags=ethtool.private_flags(index),
            tables=_by_text(ethtool.tables(index)),
        )


def _by_text(tables: Mapping[str, Mapping[int, bytes]]) -> dict[str, dict[str, bytes]]:
    """JSON has no numbers for keys."""
    return {table: {str(kind): value for kind, value in values.items()} for table, values in tables.items()}


def _put_back_ethtool(host: Host, card: Link, was: UnaskedRecord) -> list[str]:
    problems: list[str] = []
    if was.features is None:
        return problems
    with Ethtool(host.namespace.fd) as ethtool:
        for step in (_features_of, _private_flags_of, _tables_of):
            try:
                step(ethtool, card.index, was)
            except KernelError as error:
                problems.append(str(error))
    return problems


def _tables_of(ethtool: Ethtool, index: int, was: UnaskedRecord) -> None:
    now = _by_text(ethtool.tables(index))
    for table, values in (was.tables or {}).items():
        changed = {int(kind): value for kind, value in values.items() if now.get(table, {}).get(kind) != value}
        if changed and table in now:
            ethtool.set_table(index, table, changed)


def _private_flags_of(ethtool: Ethtool, index: int, was: UnaskedRecord) -> None:
    if was.private_flags and ethtool.private_flags(index) != was.private_flags:
        ethtool.set_private_flags(index, was.private_flags)


def _features_of(ethtool: Ethtool, index: int, was: UnaskedRecord) -> None:
    on = set(was.features or ())
    now = {name: feature for name, feature in ethtool.features(index).items() if feature.changeable}
    changes = {name: name in on for name, feature in now.items() if feature.wanted != (name in on)}
    if changes:
        ethtool.set_features(index, changes)


def _programs(host: Host, index: int, xdp: Iterable[int]) -> tuple[int, ...]:
    attached = host.namespace.run(lambda: bpf.attachments([index]))
    return tuple(sorted({*xdp, *(one.program_id for one in attached)}))


def _put_back_programs(host: Host, card: Link, was: UnaskedRecord) -> list[str]:
    """All go where one is foreign: a program between those of the administrator changes what they see."""
    if was.programs is None:
        return []
    now = _programs(host, card.index, [program.id for program in card.xdp_programs])
    foreign = set(now) - set(was.programs)
    if not foreign:
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


def _discipline_messages(tables: HostTables, index: int, was: UnaskedRecord) -> list[Message]:
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
