"""More planted faults: those that a review planted and no test noticed, DHCP, and what is restored on the host."""

from __future__ import annotations

from tests.mutations.fault import Fault

LEASES, STORE, STATE = (
    "tests/node/driver/test_leases.py",
    "tests/node/driver/test_store.py",
    "tests/node/driver/test_host_state.py",
)
DHCP, HELD = "tests/linux/test_dhcp.py", "tests/node/driver/test_held_namespaces.py"
LEASE, CLIENT, NETDEV = (
    "src/dranet/node/features/lease.py",
    "src/dranet/linux/dhcp/client.py",
    "src/dranet/node/features/netdev.py",
)
SAVED, NEXTHOPS, TABLES, CONFIG, TRAFFIC = (
    "src/dranet/node/features/saved_settings.py",
    "src/dranet/linux/nexthops.py",
    "src/dranet/node/features/host_tables.py",
    "src/dranet/node/features/pod_config.py",
    "src/dranet/linux/traffic/configuration.py",
)

FAULTS = (
    # Found by a review to pass all tests.
    Fault(
        "the MTU of the DHCP server counts more than the claim's",
        LEASE,
        "mtu=config.mtu if config.mtu is not None else lease.mtu,",
        "mtu=lease.mtu if lease.mtu is not None else config.mtu,",
        (LEASES,),
    ),
    Fault(
        "a lease is renewed in an earlier sandbox",
        "src/dranet/node/claims/leases.py",
        "            for key in [key for key in self._tasks if key[0] == plan.uid and key[1] != netns]:\n"
        "                self._tasks.pop(key).cancel()\n",
        "",
        (LEASES,),
    ),
    Fault(
        "a flush does not wait for the disk",
        "src/dranet/node/records/store_file.py",
        "                    os.fsync(descriptor)\n",
        "                    pass\n",
        (STORE,),
    ),
    Fault(
        "containers may make device nodes of RDMA devices",
        "src/dranet/node/edits/container_edits.py",
        '"permissions": "rw"}',
        '"permissions": "rwm"}',
        ("tests/node/driver/test_container_adjustment.py", "tests/node/driver/test_readiness_gate.py"),
    ),
    Fault(
        "expired hooks are carried out",
        "src/dranet/node/server/hooks.py",
        "    if context.expired():\n",
        "    if False:\n",
        ("tests/node/driver/test_expired_hooks.py",),
    ),
    Fault(
        "held namespaces are never released",
        "src/dranet/node/namespaces.py",
        "        for netns in set(self._open) - set(used):\n",
        "        for netns in ():\n",
        (HELD,),
    ),
    # DHCP.
    Fault(
        "any server is asked before T2",
        LEASE,
        "ask = client.renew if age < lease.rebind_after else client.rebind",
        "ask = client.rebind",
        (LEASES,),
    ),
    Fault(
        "no other server is asked after T2",
        LEASE,
        "ask = client.renew if age < lease.rebind_after else client.rebind",
        "ask = client.renew",
        (LEASES,),
    ),
    Fault(
        "any server can refuse a renewal",
        CLIENT,
        "lambda answer: renewed(answer) and answer.server == lease.server,",
        "renewed,",
        (DHCP,),
    ),
    Fault(
        "a grant of another address renews a lease",
        CLIENT,
        "ours(answer) and (answer.type == NAK or answer.address == lease.address)",
        "ours(answer)",
        (DHCP,),
    ),
    Fault(
        "a renewal is not tried again before T2",
        LEASE,
        "    end = lease.rebind_after if age < lease.rebind_after else lease.lifetime\n",
        "    end = lease.lifetime\n",
        (LEASES,),
    ),
    Fault(
        "an expired address stays in the pod",
        LEASE,
        "        pod.route.batch([*gone, *map(addresses.delete, own)])\n",
        "        pod.route.batch(gone)\n",
        (LEASES,),
    ),
    # What administrators and routing daemons configure.
    Fault(
        "the pod's routes name nexthop objects of the host",
        CONFIG,
        "yield msgspec.structs.replace(route.by_itself(), index=0)",
        "yield msgspec.structs.replace(route, index=0)",
        (STATE,),
    ),
    Fault(
        "nexthop objects are not restored",
        NETDEV,
        "        *(nexthops.add(one) for one in _own_nexthops(link, state) if state.link.is_up),\n",
        "",
        (STATE,),
    ),
    Fault(
        "groups of nexthops are not restored",
        NETDEV,
        "        *(nexthops.add(group) for group in groups if group.members),\n",
        "",
        (STATE,),
    ),
    Fault(
        "routes use the number of a nexthop that somebody else has now",
        NETDEV,
        "    ours = {id for id, one in own.items() if now.get(id) == one}\n",
        "    ours = set(own)\n",
        (STATE,),
    ),
    Fault(
        "weights in groups of nexthops are lost",
        NEXTHOPS,
        "(m.weight - 1) & 0xFF, (m.weight - 1) >> 8, 0)",
        "0, 0, 0)",
        (STATE,),
    ),
    Fault(
        "nexthop objects are resolved only in compatible mode",
        NEXTHOPS,
        "    if one is None or route.index is not None or route.next_hops:\n",
        "    if True:\n",
        (STATE,),
    ),
    Fault(
        "proxy neighbours are not restored",
        TABLES,
        "        return found + neighbours.list_neighbours(self._route, proxies=True)\n",
        "        return found\n",
        (STATE,),
    ),
    Fault(
        "proxy neighbours are copied into the pod",
        CONFIG,
        " and not n.flags & neighbours.NTF_PROXY)",
        ")",
        (STATE,),
    ),
    Fault(
        "neighbours without ARP are not restored",
        TABLES,
        "        fixed = neighbours.NUD_PERMANENT | neighbours.NUD_NOARP\n",
        "        fixed = neighbours.NUD_PERMANENT\n",
        (STATE,),
    ),
    Fault(
        "local routes are copied into the pod",
        CONFIG,
        "if r.type == routes.TYPE_UNICAST and r.table != routes.TABLE_LOCAL]",
        "]",
        (STATE,),
    ),
    Fault(
        "the IPv6 token is not restored",
        NETDEV,
        "        *token,\n",
        "",
        (STATE,),
    ),
    Fault(
        "tc classes and filters are not restored",
        SAVED,
        "        answers += yield _traffic_messages(host, link, was)\n",
        "",
        (STATE,),
    ),
    Fault(
        "tc filters that cannot be restored are accepted",
        CONFIG,
        "    if why := node.tables.unrestorable_traffic_control(link.index):\n",
        "    if why := '':\n",
        (STATE,),
    ),
    Fault(
        "tc classes come before their parents",
        TRAFFIC,
        "(depth(one.handle), one.handle))",
        "(-depth(one.handle), one.handle))",
        (STATE,),
    ),
    Fault(
        "actions of tc filters are lost",
        TRAFFIC,
        "*([codec.nested(_U32_ACTIONS, *actions)] if actions else [])])",
        "])",
        (STATE,),
    ),
    Fault(
        "additional hardware addresses are not restored",
        SAVED,
        "        answers += yield [fdb.add_unicast(link.index, mac) for mac in sorted(missing)]\n",
        "",
        (STATE,),
    ),
    Fault(
        "static multicast addresses are not restored",
        SAVED,
        "was.multicast) if was.multicast else []\n",
        "()) if was.multicast else []\n",
        (STATE,),
    ),
)
