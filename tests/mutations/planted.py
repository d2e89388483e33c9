"""Faults to plant in the driver, one at a time: where, what stands there, what takes its place, and who must notice.

A fault that no test notices is a hole in the tests. `run.py` plants them; a text that is not found exactly once is an
error, so that this list does not silently rot while the driver changes.
"""

from __future__ import annotations

from typing import NamedTuple

HOME, ATTACH, HOSTILE = "tests/driver/test_home.py", "tests/driver/test_attach.py", "tests/driver/test_hostile_pods.py"
SANDBOXES, RECONCILE = "tests/driver/test_sandboxes.py", "tests/driver/test_reconcile.py"
RECEIPT, STORE, TRAPS = "tests/driver/test_receipt.py", "tests/driver/test_store.py", "tests/driver/test_traps.py"
SUCCESSORS, NAMESPACES = "tests/driver/test_successors.py", "tests/kernel/test_namespaces.py"
PREPARE, KILL = "tests/driver/test_prepare.py", "tests/driver/test_kill.py"
FOLLOW_UP, FURTHER_PODS = "tests/driver/test_follow_up.py", "tests/driver/test_further_pods.py"


class Fault(NamedTuple):
    """One planted fault."""

    name: str
    file: str
    """Below src/dranet/driver, or src/dranet where it begins with a slash."""
    old: str
    new: str
    tests: tuple[str, ...]


CARDS, JOURNEY = "moving/cards.py", "moving/journey.py"
NETDEV, RESTORE, IDENTITY = "parts/netdev.py", "parts/netdev_restore.py", "parts/netdev_identity.py"
FETCH, UNASKED, LAYERS = "parts/netdev_fetch.py", "parts/unasked.py", "parts/network_layers.py"

FAULTS = (
    # Reconciliation and sandboxes.
    Fault(
        "reconcile always brings home",
        "serving/reconcile.py",
        "        if netns is None:\n            if plan.netns",
        "        if True:\n            if plan.netns",
        (SANDBOXES, RECONCILE),
    ),
    Fault(
        "reconcile never brings home",
        "serving/reconcile.py",
        "            if plan.netns is not None:\n                await self._home(plan)\n",
        "            pass\n",
        (RECONCILE,),
    ),
    Fault(
        "reconcile never repairs",
        "serving/reconcile.py",
        '        log.warning("the pod runs without its cards; attaching them now")\n',
        "        return\n",
        (f"{KILL}::test_dying_there_loses_nothing[containerd-attach.moved]",),
    ),
    Fault(
        "the last sandbox of the list wins",
        "serving/sandboxes.py",
        "    if plan.netns in candidates:\n        return plan.netns\n",
        "",
        (SANDBOXES,),
    ),
    Fault(
        "ended sandboxes count as running ones",
        "serving/sandboxes.py",
        "runs=pod.pid != 0",
        "runs=True",
        (SANDBOXES,),
    ),
    Fault(
        "a sandbox whose namespace is gone counts",
        "serving/sandboxes.py",
        "if sandbox.netns and namespaces.exists(sandbox.netns)]",
        "if sandbox.netns]",
        (SANDBOXES,),
    ),
    Fault(
        "a late stop empties the later sandbox",
        CARDS,
        "if plan is None or (stopping and plan.netns not in (None, stopping)):",
        "if plan is None:",
        (SANDBOXES,),
    ),
    Fault(
        "a sandbox that stops is repaired",
        CARDS,
        "if repair_of is not None and (ending or self._has_moved_on(repair_of)):",
        "if repair_of is not None and self._has_moved_on(repair_of):",
        (SANDBOXES,),
    ),
    Fault(
        "a repair takes no notice of what hooks have done since",
        CARDS,
        "if repair_of is not None and (ending or self._has_moved_on(repair_of)):",
        "if repair_of is not None and ending:",
        (RECONCILE,),
    ),
    Fault(
        "coming home takes no notice of what hooks have done since",
        CARDS,
        "if unless_moved_since is not None and self._has_moved_on(unless_moved_since):",
        "if False:",
        (RECONCILE,),
    ),
    Fault(
        "an earlier sandbox keeps the cards",
        CARDS,
        "            if plan.netns not in (None, netns):\n                self.bring_home(plan.uid)\n",
        "            pass\n",
        (SANDBOXES,),
    ),
    # Receipts, store, order.
    Fault(
        "receipts are never removed",
        CARDS,
        "        self.receipts.remove(plan.uid, [other.uid for other in self.store.beside(plan.ref.uid)])\n",
        "",
        (HOME, TRAPS, "tests/driver/test_daemon.py"),
    ),
    Fault(
        "receipts are never written",
        CARDS,
        "                for plan in plans:\n"
        "                    self.receipts.write(plan, told.get(plan.uid, Told()))\n",
        "",
        (ATTACH, "tests/driver/test_daemon.py"),
    ),
    Fault(
        "receipts of claims that are gone stay",
        "moving/receipt.py",
        "        stale = sorted(found - known, reverse=True)\n",
        "        stale: list[str] = []\n",
        (RECEIPT,),
    ),
    Fault(
        "a receipt appears in pieces",
        "moving/receipt.py",
        "        os.replace(hidden, target)\n",
        "        target.write_bytes(hidden.read_bytes())\n",
        (RECEIPT,),
    ),
    Fault(
        "where the cards go is not written down first",
        CARDS,
        '        changes = {"netns": netns, "boot"',
        '        changes = {"boot"',
        (HOME, SANDBOXES),
    ),
    Fault(
        "a plan keeps its namespace for ever",
        CARDS,
        "        self.store.change(plan.uid, netns=None, survives_reboot=False)\n",
        "",
        (HOME, ATTACH),
    ),
    Fault(
        "a failed attach leaves half of the cards inside",
        CARDS,
        "                for plan in plans:\n                    self._bring_home_again(plan)\n",
        "",
        (ATTACH,),
    ),
    Fault(
        "what could not be had is forgotten",
        CARDS,
        '            raise CardsAway("; ".join(map(str, failures)))\n',
        "            pass\n",
        (HOSTILE, HOME),
    ),
    Fault(
        "any trouble on opening a namespace means that it is gone",
        "/kernel/namespaces.py",
        "kind = NamespaceGone if error.errno in _GONE else NamespaceError",
        "kind = NamespaceGone",
        (HOME, NAMESPACES),
    ),
    Fault(
        "a plan is remembered but not written",
        "store.py",
        "                self._file.put(row, wait_for_disk=survives_reboot)\n",
        "                pass\n",
        (STORE,),
    ),
    Fault(
        "a plan is forgotten but stays on disk",
        "store.py",
        "                self._file.delete(uid)\n",
        "                pass\n",
        (STORE,),
    ),
    Fault(
        "the end of a claim takes the plan away that another driver has made of it since",
        "records/store_file.py",
        "DELETE FROM claims WHERE uid = ? AND plan = ?",
        "DELETE FROM claims WHERE uid = ? AND ? != ''",
        (STORE,),
    ),
    Fault(
        "a plan that a dying driver could not take from the file keeps its card from others",
        "claims/holders.py",
        " or at_home or ",
        " or ",
        (
            "tests/driver/test_kill.py"
            "::test_dying_before_the_end_of_a_claim_is_written_down_keeps_its_card_from_nobody[containerd-unprepare.answered]",
        ),
    ),
    Fault(
        "news of another process is missed after a write of our own",
        "records/store_file.py",
        "        elif self._version != _UNREAD:\n",
        "        else:\n",
        (STORE,),
    ),
    Fault(
        "pods of other processes are not locked out",
        "moving/pod_locks.py",
        "self._depth[stripe] > 0 or self._lock_file(stripe, wait=wait)",
        "True",
        ("tests/driver/test_pod_locks.py",),
    ),
    Fault(
        "a device that another claim holds is given away",
        "claims/holders.py",
        "            if holder is not None:\n",
        "            if False:\n",
        (PREPARE, "tests/driver/test_claims.py", TRAPS),
    ),
    Fault(
        "a claim made anew under its name is taken for the old one",
        "claims/prepare.py",
        '        if claim["metadata"]["uid"] != ref.uid:\n',
        "        if False:\n",
        (PREPARE, "tests/driver/test_claims.py", TRAPS),
    ),
    Fault(
        "a claim is unprepared although its next pod starts",
        "claims/prepare.py",
        "            if (user := await next_user(self.cluster, self.node, first, known)) is not None:\n",
        "            if user := None:\n",
        (SUCCESSORS,),
    ),
    # Identity.
    Fault(
        "identity of hardware by kind alone",
        IDENTITY,
        "    if was.parent_device:\n        return link",
        "    if was.parent_device:\n        return True or link",
        ("tests/driver/test_identity.py",),
    ),
    Fault(
        "identity of a veth by the index of its peer alone",
        IDENTITY,
        "(number != ANYWHERE and link.parent_netnsid != number)",
        "False",
        (HOSTILE,),
    ),
    Fault(
        "identity of a veth by name",
        IDENTITY,
        "        return True  # no two links have the same peer\n",
        "        return link.name in names\n",
        (HOSTILE,),
    ),
    Fault(
        "a card is looked for where it was only",
        IDENTITY,
        "    anywhere = next((link for link in links.list_links(route) if _same(link, card, names, number)), None)\n",
        "    anywhere = None\n",
        (HOSTILE,),
    ),
    Fault(
        "namespaces are not asked for the peers in them",
        IDENTITY,
        "    return NOWHERE if found is None else found\n",
        "    return ANYWHERE\n",
        (HOSTILE,),
    ),
    Fault(
        "any link that looks alike is fetched from anywhere",
        FETCH,
        "        (link,) = find_in_pod(place, [card], host)\n",
        "        (link,) = find_in_pod(place, [card])\n",
        (HOSTILE,),
    ),
    Fault(
        "nothing is fetched",
        FETCH,
        "    if _cannot_be_mistaken(found.link) and _taken_from_anywhere(host, card):\n",
        "    if False:\n",
        (HOSTILE,),
    ),
    Fault(
        "hardware is given up",
        FETCH,
        '        raise CardAway(f"{away}, and may not be rebound',
        '        return log.info(f"{away}, and may not be rebound',
        (HOSTILE,),
    ),
    Fault(
        "functions are rebound although that is forbidden",
        FETCH,
        "if not host.may_rebind or found.pci is None:",
        "if found.pci is None:",
        (HOSTILE,),
    ),
    # Coming home.
    Fault(
        "alternative names hold a card back",
        NETDEV,
        ", *(links.delete_altname(card.index, n) for n in card.altnames)]",
        "]",
        (HOSTILE,),
    ),
    Fault(
        "alternative names of the pod stay",
        RESTORE,
        "    messages = [links.delete_altname(card.index, name) for name in foreign]\n",
        "    messages: list[Message] = []\n",
        ("tests/driver/test_hostile_pods.py",),
    ),
    Fault(
        "alternative names of its own are lost",
        RESTORE,
        "    changes += [links.add_altname(card.index, name) for name in was.altnames if name not in card.altnames]\n",
        "",
        (HOSTILE,),
    ),
    Fault(
        "swapped names stay swapped",
        RESTORE,
        "    if card.name not in (found.link.name, temporary_name(found)):\n",
        "    if False:\n",
        (HOSTILE,),
    ),
    Fault("restore skips the MAC", RESTORE, '"mtu", "mac", "broadcast"', '"mtu", "broadcast"', (HOME, HOSTILE)),
    Fault("restore skips the MTU", RESTORE, '("mtu", "mac"', '("mac"', (HOME,)),
    Fault("restore skips the broadcast address", RESTORE, '"broadcast", ', "", (HOSTILE,)),
    Fault("restore skips the link mode", RESTORE, '"link_mode", ', "", (HOSTILE,)),
    Fault("restore skips the segments", RESTORE, ', "gso_max_segs")', ")", (HOSTILE,)),
    Fault(
        "restore skips the sizes",
        RESTORE,
        "    names += SIZES if any(_differs(now, was, name) for name in SIZES) else ()\n",
        "",
        (HOSTILE,),
    ),
    Fault(
        "restore skips the flags",
        RESTORE,
        "    if flags := (card.flags ^ was.flags) & _FLAGS:\n",
        "    if flags := 0:\n",
        (HOSTILE, HOME),
    ),
    Fault(
        "restore leaves every card down",
        NETDEV,
        "links.change(card.index, up=found.link.is_up)",
        "links.change(card.index, up=False)",
        (HOME,),
    ),
    Fault(
        "restore raises every card",
        NETDEV,
        "links.change(card.index, up=found.link.is_up)",
        "links.change(card.index, up=True)",
        (HOME,),
    ),
    Fault(
        "restore skips the sysctls",
        NETDEV,
        "    forgotten = settings_to_restore(_with_its_layers(host, card, found), found.link)\n",
        "    forgotten: dict[str, str] = {}\n",
        (HOME,),
    ),
    Fault(
        "settings of IPv6 are lost with a small MTU",
        NETDEV,
        "settings_to_restore(_with_its_layers(host, card, found), found.link)\n",
        "settings_to_restore(card, found.link)\n",
        ("tests/driver/test_hostile_pods.py",),
    ),
    Fault(
        "a rebuilt card keeps the names its pod gave it",
        "parts/netdev_adopted.py",
        "        altnames=(),  # the pod may have given it the name of another card, which could then not come home\n",
        "",
        ("tests/driver/test_recovery.py",),
    ),
    Fault(
        "a card that is missing keeps its claim from being rebuilt",
        "claims/adoption.py",
        "    if missing and not any(device.use in (Use.MOVED, Use.SHARED) for device in devices):\n",
        "    if missing:\n",
        ("tests/driver/test_recovery.py",),
    ),
    Fault(
        "a share is not handed over to a successor",
        "serving/successors.py",
        "device.use in _SOMETHING",
        "device.use is Use.MOVED",
        (SUCCESSORS,),
    ),
    Fault("restore skips the addresses", RESTORE, "        *address_messages(missing, card.index),\n", "", (HOME,)),
    Fault(
        "restore skips the routes",
        RESTORE,
        "        *(route_messages(found.routes, found.link.index, card.index) if found.link.is_up else ()),\n",
        "",
        (HOME,),
    ),
    Fault("restore skips the rules", RESTORE, "        *(rules.add(rule) for rule in gone),\n", "", (HOME,)),
    Fault(
        "restore skips the neighbours",
        RESTORE,
        "        *neighbour_messages(found.neighbours, card.index),\n",
        "",
        (HOME,),
    ),
    Fault(
        "offloads stay as the pod left them",
        UNASKED,
        "    changes = _changed_features(now, was.features)\n",
        "    changes: dict[str, bool] = {}\n",
        (HOSTILE,),
    ),
    Fault(
        "channels stay as the pod left them",
        UNASKED,
        "        *(partial(ethtool.set_table, card.index, name, changed) for name, changed in values.items()),\n",
        "",
        (HOSTILE,),
    ),
    Fault(
        "disciplines of the administrator are lost",
        UNASKED,
        ", *(tc.put(_on(index, one)) for one in missing)]",
        "]",
        (HOSTILE,),
    ),
    Fault(
        "disciplines of the pod stay",
        UNASKED,
        "    return [*(tc.remove(_on(index, one)) for one in foreign), ",
        "    return [",
        (HOSTILE,),
    ),
    # After prepare's answer.
    Fault(
        "a card that was taken down counts as home",
        CARDS,
        "            self._home.discard(plan.uid)  # where they are, but no longer as they were found\n",
        "",
        (FOLLOW_UP,),
    ),
    Fault(
        "a card that is home again is taken down",
        CARDS,
        "plan.netns is None and not self._journey.is_noted(plan.devices):",
        "plan.netns is None:",
        (FOLLOW_UP,),
    ),
    Fault(
        "cards are made ready by a plan of before",
        CARDS,
        "            if self.store.get(plan.uid) != plan:\n",
        "            if False:\n",
        (FOLLOW_UP,),
    ),
    Fault(
        "attach does not note what nobody has noted",
        CARDS,
        "            devices = _devices_of(self._journey.noted(self._journey.at_home(devices)))\n",
        "            pass\n",
        (FOLLOW_UP,),
    ),
    Fault(
        "what the kernel may refuse waits until after the answer",
        "claims/prepare.py",
        "        if self.cards.may_refuse(plan):\n",
        "        if False:\n",
        (FOLLOW_UP,),
    ),
    # Attach and successors.
    Fault("a card is not raised", "parts/interface.py", "        links.change(card.index, up=True),\n", "", (ATTACH,)),
    Fault(
        "addresses are not given",
        "parts/interface.py",
        "        *address_messages(want.addresses, card.index),\n",
        "",
        (ATTACH,),
    ),
    Fault(
        "routes that are taken are not said",
        "parts/interface.py",
        "        if taken:\n",
        "        if False:\n",
        (ATTACH,),
    ),
    Fault(
        "a second pod starts without the card",
        "serving/successors.py",
        "            if names_claim(container, plan):\n",
        "            if False:\n",
        (SUCCESSORS,),
    ),
    Fault(
        "a successor waits for ever",
        "serving/successors.py",
        '            await self._hand_over(plan, pod, netns)\n            return ""\n',
        "            return str(pod)\n",
        (SUCCESSORS,),
    ),
    Fault(
        "cards are handed over while the first pod lives",
        "serving/successors.py",
        "        if plan.pod.uid not in users:\n",
        "        if True:\n",
        (FURTHER_PODS,),
    ),
    Fault(
        "a rebuilt card is a link that another card has",
        "parts/netdev_adopted.py",
        " if link.index not in witness.taken]",
        "]",
        ("tests/driver/test_recovery.py",),
    ),
    Fault(
        "a rebuilt card is any link with its MAC",
        "parts/netdev_adopted.py",
        " or len(by_mac) == 1), None)",
        " or True), None)",
        ("tests/driver/test_identity.py",),
    ),
)
