"""A guaranteed share of a parent's bandwidth, enforced on what a child sends: at the parent, out of the pod's reach.

The parent gets an HTB hierarchy with a class for each share. Its rate is guaranteed, and a share may use idle bandwidth
up to the whole link, or up to the ceiling in the claim. BPF programs on the parent classify packets by the network
namespace of the sending socket, which a pod cannot forge. On a kernel without that, filters classify by source address.
Packets of no share fall into the default class, which has almost no guaranteed rate.

Only sent packets are limited, and only those that pass the kernel: RDMA traffic is not. With the last share the parent
gets back the queueing discipline that it had before the first.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from msgspec import UNSET

from dranet.core.attributes import BANDWIDTH
from dranet.core.errors import InvalidInput, Problem
from dranet.core.netconfig import NetworkConfig
from dranet.core.quantity import parse_quantity
from dranet.kubernetes.api.claims import Condition
from dranet.linux.codec import Message
from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkError
from dranet.linux.traffic import classifiers, htb, tc
from dranet.node.features.base import AttachError, Conditions, Feature, NodeContext, Problems, Step, Work
from dranet.node.features.child import FEATURE as CHILD
from dranet.node.features.host_tables import HostTables
from dranet.node.features.interface import pod_config_of
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import AttachMode, DevicePlan, Record

_CONDITION = "BandwidthShare"
_CEILING = "interface.bandwidthCeiling"
_DEFAULT_CLASS_RATE = 1_000_000
"""Guaranteed to packets outside all shares: the node's own, and forged ones."""


class PreviousQdisc(Record, frozen=True):
    """The queueing discipline that an administrator had put on the parent."""

    kind: str
    handle: int
    options: bytes = b""


class ShareRecord(Record, frozen=True):
    """The share in bit/s, the total of the parent, and the HTB class."""

    rate: int
    total: int
    minor: int
    ceiling: int = 0
    """The maximum rate; 0 for the whole parent."""
    before: PreviousQdisc | None = None
    clsact_before: bool = True
    """Whether the parent had the hook for BPF programs before its first share."""
    filters: int = 0
    """The priority of its filters; 0 for that of its class. Pods of one claim share a class, but not filters."""

    @property
    def filter_priority(self) -> int:
        return self.filters or self.minor


class ShareFeature(Feature[ShareRecord]):
    """Guarantees and limits the bandwidth of a child."""

    tag, order, record_type = "share", 12, ShareRecord

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        allocated, total = device.consumed.get(BANDWIDTH), seen.device.capacity.get(BANDWIDTH)
        if device.mode is not AttachMode.SHARED or allocated is None or total is None:
            if device.mode is not AttachMode.ADMIN and config.link.bandwidth_ceiling is not UNSET:
                message = "needs a bandwidth share: add dra.net/bandwidth to the request's capacity"
                raise InvalidInput([Problem(_CEILING, message)])
            return device
        others = self._others(device, node.tables)
        taken = {share.filter_priority for share in others}
        own = next(number for number in range(htb.FIRST_SHARE, 0xFFF) if number not in taken)
        # A claim has one share, however many pods use the claim.
        minor = next((share.minor for share in self._same_share(device, node.tables)), own)
        # The first share finds the administrator's discipline; later ones find HTB there.
        before = others[0].before if others else _previous(node.host, seen.netdev.index)
        clsact = others[0].clsact_before if others else _has_clsact(node.host, seen.netdev.index)
        rate, most = _bits(allocated), _bits(total)
        ceiling = _ceiling(config, rate, most)
        record = ShareRecord(
            rate=rate, total=most, minor=minor, ceiling=ceiling, before=before, clsact_before=clsact, filters=own
        )
        return self.with_record(device, record)

    def _others(self, device: DevicePlan, tables: HostTables) -> list[ShareRecord]:
        """The other shares of the same parent."""
        found = (self.record_of(other) for other in tables.others if other.name == device.name)
        return [share for share in found if share is not None]

    def _same_share(self, device: DevicePlan, tables: HostTables) -> list[ShareRecord]:
        """The same share, in the plans of other pods of the claim."""
        found = (self.record_of(other) for other in tables.others if other.key == device.key and device.share_id)
        return [share for share in found if share is not None]

    def attach(self, host: Host, pod: PodNamespace, device: DevicePlan, parent: Link) -> Work:
        share = self.require(device)
        yield from _add_htb(host, parent, share)
        messages = [
            htb.replace_class(parent.index, htb.ROOT_CLASS, share.total, share.total),
            htb.replace_class(parent.index, htb.DEFAULT_CLASS, min(_DEFAULT_CLASS_RATE, share.total), share.total),
            htb.replace_class(parent.index, share.minor, share.rate, share.ceiling or share.total),
        ]
        refused = [error for error in (yield messages) if error is not None]
        yield _remove_classifiers(parent.index, share)  # left by an attach that a crash interrupted
        yield [classifiers.create_clsact(parent.index)]
        refused += yield from _classify(pod, parent, share, device)
        if refused:
            raise AttachError(f"{device.name}: cannot guarantee its bandwidth share of {parent.name}: {refused[0]}")

    def bring_up(self, host: Host, pod: PodNamespace, device: DevicePlan, child: Link | None) -> Conditions:
        share = self.require(device)
        yield from ()
        most = f", at most {share.ceiling}" if share.ceiling else ""
        message = f"{share.rate} of {share.total} bit/s are guaranteed for sending{most}; receiving is not limited"
        if not classifiers.has_cookies():
            message += "; packets are counted by source address, which pods with CAP_NET_RAW can forge on this kernel"
        rdma = "; RDMA traffic bypasses the kernel and is not limited" if device.rdma else ""
        return (Condition(_CONDITION, True, "Kept", message + rdma),)

    def restore(self, host: Host, tables: HostTables, device: DevicePlan, parent: Link | None) -> Problems:
        share = self.require(device)
        if parent is None or not _has_htb(host, parent.index):
            return []
        yield _remove_classifiers(parent.index, share)
        if self._others(device, tables):
            if self._same_share(device, tables):
                return []
            (error,) = yield [htb.delete_class(parent.index, share.minor)]
            return [str(error)] if error is not None and error.errno != errno.ENOENT else []
        if share.clsact_before:
            yield [classifiers.delete(parent.index, 0)]
        else:
            yield [classifiers.delete_clsact(parent.index)]
        answers = yield _restore_messages(parent.index, share.before)
        # Another share of the same claim, detached at the same time, may have been first.
        return [str(error) for error in answers if error is not None] if _has_htb(host, parent.index) else []


def _bits(quantity: str) -> int:
    return int(parse_quantity(quantity).value)


def _ceiling(config: NetworkConfig, rate: int, total: int) -> int:
    if config.link.bandwidth_ceiling is UNSET:
        return 0
    ceiling = _bits(config.link.bandwidth_ceiling)
    if not rate <= ceiling <= total:
        between = f"must be between the share ({rate}) and the whole device ({total})"
        raise InvalidInput([Problem(_CEILING, f"{ceiling} bit/s {between}")])
    return ceiling


def _root(host: Host, index: int) -> tc.Qdisc | None:
    return next((d for d in tc.list_qdiscs(host.route) if d.index == index and d.parent == tc.ROOT), None)


def _has_htb(host: Host, index: int) -> bool:
    root = _root(host, index)
    return root is not None and root.handle == htb.HANDLE


def _has_clsact(host: Host, index: int) -> bool:
    return any(found == index for found, _ in tc.list_clsact_links(host.route))


def _previous(host: Host, index: int) -> PreviousQdisc | None:
    root = _root(host, index)
    if root is None or not root.is_configured or root.handle == htb.HANDLE:
        return None
    return PreviousQdisc(kind=root.kind, handle=root.handle, options=root.options)


def _add_htb(host: Host, parent: Link, share: ShareRecord) -> Work:
    """Add HTB once: adding it again would remove the classes of other shares."""
    root = _root(host, parent.index)
    if root is not None and root.handle == htb.HANDLE:
        return
    is_configured = root is not None and root.is_configured
    (error,) = yield [htb.create(parent.index, replace=is_configured)]
    if error is not None and error.errno != errno.EEXIST:  # another pod of this parent was faster
        raise AttachError(f"cannot share the bandwidth of {parent.name}: {error}")


def _classify(pod: PodNamespace, parent: Link, share: ShareRecord, device: DevicePlan) -> Step[list[NetlinkError]]:
    """Classify what the pod sends; returns the errors. The kernel keeps the programs after they are closed here."""
    programs: list[int] = []
    messages = [] if classifiers.has_cookies() else _filters(parent.index, share, device)
    try:
        programs.append(classifiers.reset_priority())
        messages.append(classifiers.add(parent.index, 0, programs[-1]))
        if classifiers.has_cookies():
            cookie = classifiers.netns_cookie(pod.namespace.fd)
            programs.append(classifiers.classify(cookie, share.minor))
            messages.append(classifiers.add(parent.index, share.filter_priority, programs[-1]))
        answers = yield messages
    finally:
        for program in programs:
            os.close(program)
    return [error for error in answers if error is not None]


def _remove_classifiers(index: int, share: ShareRecord) -> list[Message]:
    own = share.filter_priority
    return [*htb.delete_filters(index, own), classifiers.delete(index, own)]


def _filters(index: int, share: ShareRecord, device: DevicePlan) -> list[Message]:
    child = CHILD.record_of(device)
    assert child is not None
    if child.mac is not None:
        return [htb.match_mac(index, share.minor, child.mac, share.filter_priority)]
    addresses = pod_config_of(device).addresses
    return [htb.match_source(index, share.minor, address.local, share.filter_priority) for address in addresses]


def _restore_messages(index: int, before: PreviousQdisc | None) -> Sequence[Message]:
    ours = tc.Qdisc(index=index, parent=tc.ROOT, handle=htb.HANDLE, kind="htb")
    if before is None:
        return [tc.delete_qdisc(ours)]
    found = tc.Qdisc(index=index, parent=tc.ROOT, handle=before.handle, kind=before.kind, options=before.options)
    return [tc.delete_qdisc(ours), tc.replace_qdisc(found)]


FEATURE = ShareFeature()
