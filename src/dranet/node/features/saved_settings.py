"""Settings that a pod may change on its link without the claim asking for it: saved before, restored after.

Offloads, rings, channels, coalescing, pauses and private flags stay with a link wherever it moves, and so do XDP and
TCX programs. The kernel drops queueing disciplines with their classes and filters with every move, and additional
hardware addresses, also those of an administrator. So all of them are read before the link moves, and compared after
it is back. What cannot be read is not restored.

Prepare does not need them, and eight links take 65 requests, most of which wait for the kernel's one lock: so they are
read after the reply to the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from dranet.core.errors import KernelError
from dranet.core.logs import get_logger
from dranet.linux import fdb
from dranet.linux.codec import Message
from dranet.linux.ethtool import LinkSettings
from dranet.linux.links import Link
from dranet.linux.traffic import configuration, tc
from dranet.linux.traffic.tc import Qdisc
from dranet.node.features.base import Feature, Problems
from dranet.node.features.host_tables import HostTables
from dranet.node.features.tuning import detach_bpf
from dranet.node.namespaces import Host
from dranet.node.records.plan import AttachMode, DevicePlan, DisciplineRow, SavedSettings, TrafficRow

log = get_logger(__name__)

T = TypeVar("T")


class SavedSettingsFeature(Feature[SavedSettings]):
    """Saves and restores them. On disk they are part of the host state, where an older driver ignores them."""

    tag, order, record_type = "saved_settings", 25, SavedSettings

    def record_of(self, device: DevicePlan) -> SavedSettings | None:
        return device.host_state.saved_settings if device.host_state and device.mode is AttachMode.MOVED else None

    def with_record(self, device: DevicePlan, record: SavedSettings) -> DevicePlan:
        assert device.host_state is not None
        return msgspec.structs.replace(
            device, host_state=msgspec.structs.replace(device.host_state, saved_settings=record)
        )

    def has_saved_settings(self, device: DevicePlan) -> bool:
        return (
            device.host_state is None
            or device.mode is not AttachMode.MOVED
            or device.host_state.saved_settings is not None
        )

    def save_settings(self, host: Host, tables: HostTables, device: DevicePlan, link: Link) -> DevicePlan:
        if self.has_saved_settings(device):
            return device
        xdp = [program.id for program in link.xdp_programs]
        ethtool = _try_read(device, lambda: tables.ethtool_settings(host, link.index))
        return self.with_record(
            device,
            SavedSettings(
                features=ethtool.wanted_features if ethtool else None,
                private_flags=ethtool.private_flags if ethtool else None,
                tables=_with_text_keys(ethtool.tables) if ethtool else None,
                disciplines=_try_read(device, lambda: _disciplines(tables, link.index)),
                programs=_try_read(device, lambda: _programs(host, tables, link.index, xdp)),
                traffic=_try_read(device, lambda: _traffic(host, link)),
                hardware_addresses=_try_read(device, lambda: tuple(fdb.list_unicast(host.route, link.index))),
                multicast=_try_read(device, lambda: tuple(fdb.list_static_multicast(host.namespace.fd, link.name))),
            ),
        )

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, link: Link | None) -> Problems:
        was = self.require(device)
        if link is None:
            return []
        problems: list[str] = []
        for restore in (_restore_ethtool, _restore_programs):
            try:
                problems += restore(host, tables, link, was)
            except (KernelError, OSError) as error:
                problems.append(f"{device.name}: {error}")
        answers = list((yield _discipline_messages(tables, link.index, was)))
        answers += yield _traffic_messages(host, link, was)
        missing = set(was.hardware_addresses or ())
        if missing:  # most links have none, and eight devices must not cost eight requests
            missing -= set(fdb.list_unicast(host.route, link.index))
        answers += yield [fdb.add_unicast(link.index, mac) for mac in sorted(missing)]
        problems += fdb.add_static_multicast(host.namespace.fd, link.name, was.multicast) if was.multicast else []
        return problems + [str(error) for error in answers if error is not None]


def _try_read(device: DevicePlan, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (KernelError, OSError) as error:
        log.info("Cannot read settings of a device; they will not be restored", device=device.name, error=error)
        return None


def _with_text_keys(tables: Mapping[str, Mapping[int, bytes]]) -> dict[str, dict[str, bytes]]:
    """JSON has no numbers for keys."""
    return {table: {str(kind): value for kind, value in values.items()} for table, values in tables.items()}


def _restore_ethtool(host: Host, tables: HostTables, link: Link, was: SavedSettings) -> list[str]:
    if was.features is None or was.tables is None:
        return []
    # Only what was saved is read again: NICs of one kind have the same settings, and many have few.
    now = tables.ethtool_settings(
        host, link.index, ("features", *(["flags"] if was.private_flags else []), *was.tables)
    )
    changes = _changed_features(now, was.features)
    flags = was.private_flags if was.private_flags and was.private_flags != now.private_flags else {}
    values = {name: changed for name in was.tables if (changed := _changed(now.tables.get(name), was.tables[name]))}
    if not changes and not flags and not values:
        return []
    ethtool = host.ethtool
    steps: list[Callable[[], None]] = [
        *([lambda: ethtool.set_features(link.index, changes)] if changes else []),
        *([lambda: ethtool.set_private_flags(link.index, flags)] if flags else []),
        *(partial(ethtool.set_table, link.index, name, changed) for name, changed in values.items()),
    ]
    return [problem for step in steps for problem in _problems_of(step)]


def _problems_of(step: Callable[[], None]) -> list[str]:
    try:
        step()
    except KernelError as error:
        return [str(error)]
    return []


def _changed_features(now: LinkSettings, on: Sequence[str]) -> dict[str, bool]:
    if now.wanted_features == on:
        return {}
    free = {name: feature for name, feature in now.features.items() if feature.changeable}
    return {name: name in on for name, feature in free.items() if feature.wanted != (name in on)}


def _changed(now: Mapping[int, bytes] | None, was: Mapping[str, bytes]) -> dict[int, bytes]:
    if now is None:
        return {}
    return {int(kind): value for kind, value in was.items() if now.get(int(kind)) != value}


def _programs(host: Host, tables: HostTables, index: int, xdp: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({*xdp, *(one.program_id for one in tables.programs(host, index))}))


def _restore_programs(host: Host, tables: HostTables, link: Link, was: SavedSettings) -> list[str]:
    """Detach all programs if one is new: a program between those of the administrator changes what they see."""
    if was.programs is None:
        return []
    now = _programs(host, tables, link.index, [program.id for program in link.xdp_programs])
    if set(now) <= set(was.programs):
        return []
    detach_bpf(host, link)
    gone = sorted(set(was.programs) & set(now))
    return (
        [f"detached the BPF programs {gone} of {link.name} together with those of the pod; attach them again"]
        if gone
        else []
    )


def _disciplines(tables: HostTables, index: int) -> tuple[DisciplineRow, ...]:
    return tuple(
        DisciplineRow(parent=one.parent, handle=one.handle, kind=one.kind, options=one.options)
        for one in tables.disciplines
        if one.index == index
    )


def _discipline_messages(tables: HostTables, index: int, was: SavedSettings) -> list[Message]:
    """Those of the pod are removed first: one may be in the place of another."""
    if was.disciplines is None:
        return []
    now = _disciplines(tables, index)
    added = [one for one in now if one not in was.disciplines]
    missing = [one for one in was.disciplines if one not in now]
    return [
        *(tc.delete_qdisc(_on(index, one)) for one in added),
        *(tc.replace_qdisc(_on(index, one)) for one in missing),
    ]


def _traffic(host: Host, link: Link) -> tuple[TrafficRow, ...]:
    found = configuration.read(host.route, link.index)
    return tuple(msgspec.convert(one, TrafficRow, from_attributes=True) for one in found)


def _traffic_messages(host: Host, link: Link, was: SavedSettings) -> list[Message]:
    """What the qdiscs of before lack now; those of the pod are gone, with everything on them."""
    now = set(_traffic(host, link)) if was.traffic else set()
    missing = [one for one in was.traffic or () if one not in now]
    entries = (msgspec.convert(one, configuration.Entry, from_attributes=True) for one in missing)
    return configuration.add(link.index, entries)


def _on(index: int, row: DisciplineRow) -> Qdisc:
    return Qdisc(index=index, parent=row.parent, handle=row.handle, kind=row.kind, options=row.options)


FEATURE = SavedSettingsFeature()
