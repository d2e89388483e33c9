"""A share of a card's bandwidth that holds: what a child sends is kept for it, at the card, where no pod can lift it.

The card gets a hierarchy of token buckets with a class for each share: its rate is guaranteed, and what others leave
idle may be used up to the whole link, or to the ceiling the claim names. Packets are told apart by their source, which
a pod may forge; then they fall into the class of nobody, which has next to nothing guaranteed, so forging wins nothing
while others need their share.

Only what is sent is held, and only what passes the kernel: RDMA traffic does not. When the last share leaves, the card
has the queueing discipline again that it had before the first.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from msgspec import UNSET

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import AttachError, Node, Part, Problems, Said, Work
from dranet.driver.parts.child import PART as CHILD
from dranet.driver.parts.host_tables import HostTables
from dranet.driver.parts.interface import wanted_of
from dranet.driver.records.plan import DevicePlan, Record, Use
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel.codec import Message
from dranet.kernel.links import Link
from dranet.kernel.traffic import htb, tc
from dranet.kube.claims import Condition
from dranet.model.attributes import BANDWIDTH
from dranet.model.errors import InvalidInput, Problem
from dranet.model.netconfig import NetworkConfig
from dranet.model.quantity import parse_quantity

CONDITION = "BandwidthShare"
_CEILING = "interface.bandwidthCeiling"
_FOR_NOBODY = 1_000_000
"""Guaranteed to what belongs to no share: the node's own packets, and forged ones."""


class Before(Record, frozen=True):
    """The queueing discipline somebody had put on the card."""

    kind: str
    handle: int
    options: bytes = b""


class ShareRecord(Record, frozen=True):
    """Bits per second, of how many, and the class they are kept in."""

    rate: int
    total: int
    minor: int
    ceiling: int = 0
    """The most it may send; 0 for all of it."""
    before: Before | None = None
    filters: int = 0
    """The number its filters go by; 0 for that of its class. Pods of one claim have one class, and filters each."""

    @property
    def own(self) -> int:
        return self.filters or self.minor


class SharePart(Part[ShareRecord]):
    """Holds a child to its share."""

    tag, place, record = "share", 12, ShareRecord

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        given, total = device.consumed.get(BANDWIDTH), seen.device.capacity.get(BANDWIDTH)
        if device.use is not Use.SHARED or given is None or total is None:
            if device.use is not Use.ADMIN and config.link.bandwidth_ceiling is not UNSET:
                message = "is for a share of a card: name dra.net/bandwidth in the request's capacity"
                raise InvalidInput([Problem(_CEILING, message)])
            return device
        beside = self._beside(device, node.tables)
        taken = {share.own for share in beside}
        own = next(number for number in range(htb.FIRST_SHARE, 0xFFF) if number not in taken)
        # The claim has one share, however many pods have the claim.
        minor = next((share.minor for share in self._same(device, node.tables)), own)
        # The first share finds the card as somebody left it; those after it find our own discipline there.
        before = beside[0].before if beside else _before(node.host, seen.netdev.index)
        rate, most = _bits(given), _bits(total)
        ceiling = _ceiling(config, rate, most)
        made = ShareRecord(rate=rate, total=most, minor=minor, ceiling=ceiling, before=before, filters=own)
        return self.keep(device, made)

    def _beside(self, device: DevicePlan, tables: HostTables) -> list[ShareRecord]:
        """The other shares of the same card."""
        found = (self.of(other) for other in tables.others if other.name == device.name)
        return [share for share in found if share is not None]

    def _same(self, device: DevicePlan, tables: HostTables) -> list[ShareRecord]:
        """This very share, as other pods of the claim have it."""
        found = (self.of(other) for other in tables.others if other.key == device.key and device.share_id)
        return [share for share in found if share is not None]

    def enter(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link) -> Work:
        share = self.of(device)
        assert share is not None
        yield from _make_room(host, card, share)
        messages = [
            htb.put_class(card.index, htb.ROOT_CLASS, share.total, share.total),
            htb.put_class(card.index, htb.DEFAULT_CLASS, min(_FOR_NOBODY, share.total), share.total),
            htb.put_class(card.index, share.minor, share.rate, share.ceiling or share.total),
        ]
        refused = [error for error in (yield messages) if error is not None]
        yield htb.forget_filters(card.index, share.own)  # of an attach that was cut short
        refused += [error for error in (yield _filters(card.index, share, device)) if error is not None]
        if refused:
            raise AttachError(f"{device.name}: its share of {card.name} cannot be kept for it: {refused[0]}")

    def rise(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Said:
        share = self.of(device)
        assert share is not None
        yield from ()
        most = f", at most {share.ceiling}" if share.ceiling else ""
        words = f"{share.rate} of {share.total} bit/s are kept for what it sends{most}; what it receives is not held"
        rdma = "; RDMA traffic does not pass the kernel and is not held" if device.rdma else ""
        return (Condition(CONDITION, True, "Kept", words + rdma),)

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, card: Link | None) -> Problems:
        share = self.of(device)
        assert share is not None
        if card is None or not _is_ours(host, card.index):
            return []
        if self._beside(device, tables):
            yield htb.forget_filters(card.index, share.own)
            if self._same(device, tables):
                return []
            (error,) = yield [htb.delete_class(card.index, share.minor)]
            return [str(error)] if error is not None and error.errno != errno.ENOENT else []
        answers = yield _as_before(card.index, share.before)
        # Another share of the same claim, on its way home beside this one, may have been first.
        return [str(error) for error in answers if error is not None] if _is_ours(host, card.index) else []


def _bits(quantity: str) -> int:
    return int(parse_quantity(quantity).value)


def _ceiling(config: NetworkConfig, rate: int, total: int) -> int:
    if config.link.bandwidth_ceiling is UNSET:
        return 0
    ceiling = _bits(config.link.bandwidth_ceiling)
    if not rate <= ceiling <= total:
        between = f"must be between the share, {rate}, and the whole card, {total}"
        raise InvalidInput([Problem(_CEILING, f"{ceiling} bit/s {between}")])
    return ceiling


def _root(host: Host, index: int) -> tc.Discipline | None:
    return next((d for d in tc.list_disciplines(host.route) if d.index == index and d.parent == tc.ROOT), None)


def _is_ours(host: Host, index: int) -> bool:
    root = _root(host, index)
    return root is not None and root.handle == htb.HANDLE


def _before(host: Host, index: int) -> Before | None:
    root = _root(host, index)
    if root is None or not root.is_made or root.handle == htb.HANDLE:
        return None
    return Before(kind=root.kind, handle=root.handle, options=root.options)


def _make_room(host: Host, card: Link, share: ShareRecord) -> Work:
    """Our discipline on the card, once: making it again would throw away what other shares have there."""
    root = _root(host, card.index)
    if root is not None and root.handle == htb.HANDLE:
        return
    made_by_somebody = root is not None and root.is_made
    (error,) = yield [htb.create(card.index, replace=made_by_somebody)]
    if error is not None and error.errno != errno.EEXIST:  # another pod of this card was faster
        raise AttachError(f"the bandwidth of {card.name} cannot be shared: {error}")


def _filters(index: int, share: ShareRecord, device: DevicePlan) -> list[Message]:
    child = CHILD.of(device)
    assert child is not None
    if child.mac is not None:
        return [htb.match_mac(index, share.minor, child.mac, share.own)]
    addresses = wanted_of(device).addresses
    return [htb.match_source(index, share.minor, address.local, share.own) for address in addresses]


def _as_before(index: int, before: Before | None) -> Sequence[Message]:
    ours = tc.Discipline(index=index, parent=tc.ROOT, handle=htb.HANDLE, kind="htb")
    if before is None:
        return [tc.remove(ours)]
    found = tc.Discipline(index=index, parent=tc.ROOT, handle=before.handle, kind=before.kind, options=before.options)
    return [tc.remove(ours), tc.put(found)]


PART = SharePart()
