"""Faults to plant in the driver, one at a time: where, what stands there, what takes its place, and who must notice.

A fault that no test notices is a hole in the tests. `run.py` plants them; a text that is not found exactly once is an
error, so that this list does not silently rot while the driver changes.
"""

from __future__ import annotations

from typing import NamedTuple

HOME, ATTACH, MALICIOUS = (
    "tests/node/driver/test_detach.py",
    "tests/node/driver/test_attach.py",
    "tests/node/driver/test_malicious_pods.py",
)
SANDBOXES, RECONCILE = "tests/node/driver/test_sandboxes.py", "tests/node/driver/test_reconcile.py"
GATE, STORE, TRAPS = (
    "tests/node/driver/test_readiness_gate.py",
    "tests/node/driver/test_store.py",
    "tests/node/driver/test_pitfalls.py",
)
SUCCESSORS, NAMESPACES = "tests/node/driver/test_claim_handover.py", "tests/linux/test_namespaces.py"
PREPARE, KILL = "tests/node/driver/test_prepare.py", "tests/node/driver/test_crash_points.py"
FOLLOW_UP, FURTHER_PODS = "tests/node/driver/test_after_reply.py", "tests/node/driver/test_additional_pods.py"


class Fault(NamedTuple):
    """One planted fault."""

    name: str
    file: str
    """The path of the module from the root of the repository."""
    old: str
    new: str
    tests: tuple[str, ...]


NICS, STEPS = "src/dranet/node/lifecycle/device_lifecycle.py", "src/dranet/node/lifecycle/feature_steps.py"
NETDEV, RESTORE, IDENTITY = (
    "src/dranet/node/features/netdev.py",
    "src/dranet/node/features/netdev.py",
    "src/dranet/node/features/netdev_search.py",
)
FETCH, SAVED_SETTINGS, LAYERS = (
    "src/dranet/node/features/netdev_search.py",
    "src/dranet/node/features/saved_settings.py",
    "src/dranet/node/features/interface.py",
)

FAULTS = (
    # Reconciliation and sandboxes.
    Fault(
        "reconcile always detaches",
        "src/dranet/node/server/recovery.py",
        "        if netns is None:\n            if plan.netns",
        "        if True:\n            if plan.netns",
        (SANDBOXES, RECONCILE),
    ),
    Fault(
        "reconcile never detaches",
        "src/dranet/node/server/recovery.py",
        "            if plan.netns is not None:\n                await self._detach(plan)\n",
        "            pass\n",
        (RECONCILE,),
    ),
    Fault(
        "reconcile never repairs",
        "src/dranet/node/server/recovery.py",
        '        log.warning("Pod runs without its devices; attaching them now")\n',
        "        return\n",
        (f"{KILL}::test_crash_at_each_point_loses_nothing[containerd-attach.moved]",),
    ),
    Fault(
        "the last sandbox of the list wins",
        "src/dranet/node/server/runtime.py",
        "    if plan.netns in candidates:\n        return plan.netns\n",
        "",
        (SANDBOXES,),
    ),
    Fault(
        "ended sandboxes count as running ones",
        "src/dranet/node/server/runtime.py",
        "runs=pod.pid != 0",
        "runs=True",
        (SANDBOXES,),
    ),
    Fault(
        "a sandbox whose namespace is gone counts",
        "src/dranet/node/server/runtime.py",
        "if sandbox.netns and namespaces.exists(sandbox.netns)]",
        "if sandbox.netns]",
        (SANDBOXES,),
    ),
    Fault(
        "a late stop empties the later sandbox",
        NICS,
        "if plan is None or (stopping and plan.netns not in (None, stopping)):",
        "if plan is None:",
        (SANDBOXES,),
    ),
    Fault(
        "a sandbox that stops is repaired",
        NICS,
        "if repair_of is not None and (stopping or self._has_moved_since(repair_of)):",
        "if repair_of is not None and self._has_moved_since(repair_of):",
        (SANDBOXES,),
    ),
    Fault(
        "a repair takes no notice of what hooks have done since",
        NICS,
        "if repair_of is not None and (stopping or self._has_moved_since(repair_of)):",
        "if repair_of is not None and stopping:",
        (RECONCILE,),
    ),
    Fault(
        "detach takes no notice of what hooks have done since",
        NICS,
        "if unless_moved_since is not None and self._has_moved_since(unless_moved_since):",
        "if False:",
        (RECONCILE,),
    ),
    Fault(
        "an earlier sandbox keeps the NICs",
        NICS,
        "            if plan.netns not in (None, netns):\n                self.detach(plan.uid)\n",
        "            pass\n",
        (SANDBOXES,),
    ),
    # Readiness gates, store, order.
    Fault(
        "readiness gates are never removed",
        NICS,
        "        self.gates.remove(plan.uid, [other.uid for other in self.store.additional_plans(plan.ref.uid)])\n",
        "",
        (HOME, TRAPS, "tests/node/driver/test_daemon.py"),
    ),
    Fault(
        "readiness gates are never written",
        NICS,
        "                for plan in plans:\n"
        "                    self.gates.write(plan, edits.get(plan.uid, NO_EDITS))\n",
        "",
        (ATTACH, "tests/node/driver/test_daemon.py"),
    ),
    Fault(
        "readiness gates of claims that are gone stay",
        "src/dranet/node/edits/readiness_gate.py",
        "        stale = sorted(found - known, reverse=True)\n",
        "        stale: list[str] = []\n",
        (GATE,),
    ),
    Fault(
        "a readiness gate appears in pieces",
        "src/dranet/node/edits/readiness_gate.py",
        "        os.replace(hidden, target)\n",
        "        target.write_bytes(hidden.read_bytes())\n",
        (GATE,),
    ),
    Fault(
        "where the NICs go is not written down first",
        NICS,
        '        changes = {"netns": netns, "boot"',
        '        changes = {"boot"',
        (HOME, SANDBOXES),
    ),
    Fault(
        "a plan keeps its namespace for ever",
        NICS,
        "        self.store.change(plan.uid, netns=None, survives_reboot=False)\n",
        "",
        (HOME, ATTACH),
    ),
    Fault(
        "a failed attach leaves half of the NICs inside",
        NICS,
        "                for plan in plans:\n                    self._detach_after_failure(plan)\n",
        "",
        (ATTACH,),
    ),
    Fault(
        "what could not be had is forgotten",
        NICS,
        '            raise DetachError("; ".join(map(str, failures)))\n',
        "            pass\n",
        (MALICIOUS, HOME),
    ),
    Fault(
        "any trouble on opening a namespace means that it is gone",
        "src/dranet/linux/namespaces.py",
        "kind = NamespaceGone if error.errno in _GONE else NamespaceError",
        "kind = NamespaceGone",
        (HOME, NAMESPACES),
    ),
    Fault(
        "a plan is remembered but not written",
        "src/dranet/node/store.py",
        "                self._file.put(row, wait_for_disk=survives_reboot)\n",
        "                pass\n",
        (STORE,),
    ),
    Fault(
        "a plan is forgotten but stays on disk",
        "src/dranet/node/store.py",
        "                self._file.delete(uid)\n",
        "                pass\n",
        (STORE,),
    ),
    Fault(
        "the end of a claim takes the plan away that another driver has made of it since",
        "src/dranet/node/records/store_file.py",
        "DELETE FROM claims WHERE uid = ? AND plan = ?",
        "DELETE FROM claims WHERE uid = ? AND ? != ''",
        (STORE,),
    ),
    Fault(
        "a plan that a dying driver could not take from the file keeps its NIC from others",
        "src/dranet/node/claims/holders.py",
        " or is_detached or ",
        " or ",
        (
            "tests/node/driver/test_crash_points.py"
            "::test_crash_before_release_is_stored_frees_the_device[unprepare.answered]",
        ),
    ),
    Fault(
        "news of another process is missed after a write of our own",
        "src/dranet/node/records/store_file.py",
        "        elif self._version != _NEVER_READ:\n",
        "        else:\n",
        (STORE,),
    ),
    Fault(
        "pods of other processes are not locked out",
        "src/dranet/node/lifecycle/pod_locks.py",
        "self._depth[stripe] > 0 or self._lock_file(stripe, wait=wait)",
        "True",
        ("tests/node/driver/test_pod_locks.py",),
    ),
    Fault(
        "a device that another claim holds is given away",
        "src/dranet/node/claims/holders.py",
        "            if holder is not None:\n",
        "            if False:\n",
        (PREPARE, "tests/node/driver/test_allocation.py", TRAPS),
    ),
    Fault(
        "a claim recreated under its name is taken for the old one",
        "src/dranet/node/claims/prepare.py",
        "        if uid != ref.uid:\n",
        "        if False:\n",
        (PREPARE, "tests/node/driver/test_allocation.py", TRAPS),
    ),
    Fault(
        "a claim is unprepared although its next pod starts",
        "src/dranet/node/claims/prepare.py",
        "            if (user := await next_pod(self.cluster, self.node, first, known)) is not None:\n",
        "            if user := None:\n",
        (SUCCESSORS,),
    ),
    # Identity.
    Fault(
        "identity of hardware by kind alone",
        IDENTITY,
        "    if was.parent_device:\n        return link",
        "    if was.parent_device:\n        return True or link",
        ("tests/node/driver/test_netdev_identity.py",),
    ),
    Fault(
        "identity of a veth by the index of its peer alone",
        IDENTITY,
        "(netns_id != _ANYWHERE and link.parent_netnsid != netns_id)",
        "False",
        (MALICIOUS,),
    ),
    Fault(
        "identity of a veth by name",
        IDENTITY,
        "        return True  # no two links have the same peer\n",
        "        return link.name in names\n",
        (MALICIOUS,),
    ),
    Fault(
        "a NIC is looked for where it was only",
        IDENTITY,
        "next((link for link in links.list_links(route) if is_same_link(link, wanted, names, netns_id)), None)\n",
        "None\n",
        (MALICIOUS,),
    ),
    Fault(
        "namespaces are not asked for the peers in them",
        IDENTITY,
        "    return _NOWHERE if found is None else found\n",
        "    return _ANYWHERE\n",
        (MALICIOUS,),
    ),
    Fault(
        "any link that looks the same is fetched from anywhere",
        FETCH,
        "        (link,) = find_in_pod(other, [wanted], host)\n",
        "        (link,) = find_in_pod(other, [wanted])\n",
        (MALICIOUS,),
    ),
    Fault(
        "nothing is fetched",
        FETCH,
        "    if _is_unmistakable(state.link) and _take_from_anywhere(host, wanted):\n",
        "    if False:\n",
        (MALICIOUS,),
    ),
    Fault(
        "hardware is given up",
        FETCH,
        '        raise LinkNotFound(f"{lost}, and the driver may not',
        '        return log.info(f"{lost}, and the driver may not',
        (MALICIOUS,),
    ),
    Fault(
        "functions are rebound although that is forbidden",
        FETCH,
        "if not host.may_rebind or state.pci is None:",
        "if state.pci is None:",
        (MALICIOUS,),
    ),
    # Detach.
    Fault(
        "alternative names hold a NIC back",
        NETDEV,
        ", *(links.delete_altname(link.index, n) for n in link.altnames)]",
        "]",
        (MALICIOUS,),
    ),
    Fault(
        "alternative names of the pod stay",
        RESTORE,
        "    messages = [links.delete_altname(link.index, name) for name in foreign]\n",
        "    messages: list[Message] = []\n",
        ("tests/node/driver/test_malicious_pods.py",),
    ),
    Fault(
        "alternative names of its own are lost",
        RESTORE,
        "    changes += [links.add_altname(link.index, name) for name in was.altnames if name not in link.altnames]\n",
        "",
        (MALICIOUS,),
    ),
    Fault(
        "swapped names stay swapped",
        RESTORE,
        "    if link.name not in (state.link.name, temporary_name(state)):\n",
        "    if False:\n",
        (MALICIOUS,),
    ),
    Fault("restore skips the MAC", RESTORE, '"mtu", "mac", "broadcast"', '"mtu", "broadcast"', (HOME, MALICIOUS)),
    Fault("restore skips the MTU", RESTORE, '("mtu", "mac"', '("mac"', (HOME,)),
    Fault("restore skips the broadcast address", RESTORE, '"broadcast", ', "", (MALICIOUS,)),
    Fault("restore skips the link mode", RESTORE, '"link_mode", ', "", (MALICIOUS,)),
    Fault("restore skips the segments", RESTORE, ', "gso_max_segs")', ")", (MALICIOUS,)),
    Fault(
        "restore skips the sizes",
        RESTORE,
        "    names += SIZES if any(_differs(now, was, name) for name in SIZES) else ()\n",
        "",
        (MALICIOUS,),
    ),
    Fault(
        "restore skips the flags",
        RESTORE,
        "    if flags := (link.flags ^ was.flags) & _FLAGS:\n",
        "    if flags := 0:\n",
        (MALICIOUS, HOME),
    ),
    Fault(
        "restore leaves every NIC down",
        NETDEV,
        "links.change(link.index, up=state.link.is_up)",
        "links.change(link.index, up=False)",
        (HOME,),
    ),
    Fault(
        "restore raises every NIC",
        NETDEV,
        "links.change(link.index, up=state.link.is_up)",
        "links.change(link.index, up=True)",
        (HOME,),
    ),
    Fault(
        "restore skips the sysctls",
        NETDEV,
        "    sysctls = _sysctls_to_restore(_with_ipv6_settings(host, link, state), state.link)\n",
        "    sysctls: dict[str, str] = {}\n",
        (HOME,),
    ),
    Fault(
        "settings of IPv6 are lost with a small MTU",
        NETDEV,
        "_sysctls_to_restore(_with_ipv6_settings(host, link, state), state.link)\n",
        "_sysctls_to_restore(link, state.link)\n",
        ("tests/node/driver/test_malicious_pods.py",),
    ),
    Fault(
        "a rebuilt NIC keeps the names its pod gave it",
        "src/dranet/node/features/netdev_search.py",
        "        altnames=(),  # the pod may have given it the name of another link, which blocks that one\n",
        "",
        ("tests/node/driver/test_recovery.py",),
    ),
    Fault(
        "a NIC that is missing keeps its claim from being rebuilt",
        "src/dranet/node/claims/recover.py",
        "    if missing and not any(device.mode in (AttachMode.MOVED, AttachMode.SHARED) for device in devices):\n",
        "    if missing:\n",
        ("tests/node/driver/test_recovery.py",),
    ),
    Fault(
        "a share is not handed over to a successor",
        "src/dranet/node/server/handover.py",
        "device.mode in _ATTACHING_MODES",
        "device.mode is AttachMode.MOVED",
        (SUCCESSORS,),
    ),
    Fault("restore skips the addresses", RESTORE, "        *address_messages(missing, link.index),\n", "", (HOME,)),
    Fault(
        "restore skips the routes",
        RESTORE,
        "        *(route_messages(state.routes, state.link.index, link.index) if state.link.is_up else ()),\n",
        "",
        (HOME,),
    ),
    Fault("restore skips the rules", RESTORE, "        *(rules.add(rule) for rule in gone),\n", "", (HOME,)),
    Fault(
        "restore skips the neighbours",
        RESTORE,
        "        *neighbour_messages(state.neighbours, link.index),\n",
        "",
        (HOME,),
    ),
    Fault(
        "offloads stay as the pod left them",
        SAVED_SETTINGS,
        "    changes = _changed_features(now, was.features)\n",
        "    changes: dict[str, bool] = {}\n",
        (MALICIOUS,),
    ),
    Fault(
        "channels stay as the pod left them",
        SAVED_SETTINGS,
        "        *(partial(ethtool.set_table, link.index, name, changed) for name, changed in values.items()),\n",
        "",
        (MALICIOUS,),
    ),
    Fault(
        "disciplines of the administrator are lost",
        SAVED_SETTINGS,
        "        *(tc.replace_qdisc(_on(index, one)) for one in missing),\n",
        "",
        (MALICIOUS,),
    ),
    Fault(
        "disciplines of the pod stay",
        SAVED_SETTINGS,
        "        *(tc.delete_qdisc(_on(index, one)) for one in added),\n",
        "",
        (MALICIOUS,),
    ),
    # After prepare's answer.
    Fault(
        "a NIC that was taken down counts as returned",
        NICS,
        "            self._restored.discard(plan.uid)\n            # The host",
        "            # The host",
        (FOLLOW_UP,),
    ),
    Fault(
        "a NIC that is on the host again is taken down",
        NICS,
        "plan.netns is None and not self._steps.has_saved_settings(plan.devices):",
        "plan.netns is None:",
        (FOLLOW_UP,),
    ),
    Fault(
        "NICs are made ready by a plan of before",
        NICS,
        "            if self.store.get(plan.uid) != plan:\n",
        "            if False:\n",
        (FOLLOW_UP,),
    ),
    Fault(
        "attach does not note what was not noted before",
        NICS,
        "            devices = _devices_of(self._steps.save_settings(self._steps.find_on_host(devices)))\n",
        "            pass\n",
        (FOLLOW_UP,),
    ),
    Fault(
        "what the kernel may refuse waits until after the answer",
        "src/dranet/node/claims/prepare.py",
        "        if self.lifecycle.set_up_may_fail(plan):\n",
        "        if False:\n",
        (FOLLOW_UP,),
    ),
    # Attach and successors.
    Fault(
        "a NIC is not raised",
        "src/dranet/node/features/interface.py",
        "        links.change(link.index, up=True),\n",
        "",
        (ATTACH,),
    ),
    Fault(
        "addresses are not given",
        "src/dranet/node/features/interface.py",
        "        *address_messages(config.addresses, link.index),\n",
        "",
        (ATTACH,),
    ),
    Fault(
        "routes that are taken are not said",
        "src/dranet/node/features/interface.py",
        "        if taken:\n",
        "        if False:\n",
        (ATTACH,),
    ),
    Fault(
        "a second pod starts without the NIC",
        "src/dranet/node/server/handover.py",
        "            if names_claim(container, plan):\n",
        "            if False:\n",
        (SUCCESSORS,),
    ),
    Fault(
        "a successor waits for ever",
        "src/dranet/node/server/handover.py",
        '            await self._hand_over(plan, pod, netns)\n            return ""\n',
        "            return str(pod)\n",
        (SUCCESSORS,),
    ),
    Fault(
        "NICs are handed over while the first pod lives",
        "src/dranet/node/server/handover.py",
        "        if plan.pod.uid not in users:\n",
        "        if True:\n",
        (FURTHER_PODS,),
    ),
    Fault(
        "a rebuilt NIC is a link that another NIC has",
        "src/dranet/node/features/netdev_search.py",
        " if link.index not in context.taken]",
        "]",
        ("tests/node/driver/test_recovery.py",),
    ),
    Fault(
        "a rebuilt NIC is any link with its MAC",
        "src/dranet/node/features/netdev_search.py",
        " or len(by_mac) == 1), None)",
        " or True), None)",
        ("tests/node/driver/test_netdev_identity.py",),
    ),
)
