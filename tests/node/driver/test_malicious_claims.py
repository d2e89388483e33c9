"""Parameters may be malicious: whatever a claim contains, nothing outside its own pod and NIC changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dranet.core.errors import DranetError
from dranet.linux import addresses, links, routes, rules
from tests.kernel_tools import read_sysctls

from .conftest import TestNode

NAMES = st.sampled_from(
    [
        "eth9",
        "lo",
        "nic1",
        "all",
        "default",
        "..",
        "../../kernel",
        "a/b",
        "x" * 16,
        "",
        "é",
        "dranet2",
        "-h",
        "%s",
        "{x}",
    ]
)
PREFIXES = st.sampled_from(
    [
        "10.0.0.1/24",
        "0.0.0.0/0",
        "255.255.255.255/32",
        "127.0.0.1/8",
        "fd00::1/64",
        "::1/128",
        "::/0",
        "224.0.0.1/4",
        "x",
    ]
)
ADDRESSES = st.sampled_from(["10.0.0.254", "127.0.0.1", "0.0.0.0", "fd00::2", "::", "10.1.0.254", "x"])
MACS = st.sampled_from(["02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "01:00:5e:00:00:01", "zz"])
NUMBERS = st.sampled_from([-1, 0, 1, 67, 68, 1500, 65536, 253, 254, 255, 2**31 - 1, 2**31, 2**32 - 1])


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


CONFIGS = maybe(
    interface=maybe(
        name=NAMES,
        addresses=st.lists(PREFIXES, max_size=3),
        mtu=NUMBERS,
        hardwareAddr=MACS,
        gsoMaxSize=NUMBERS,
        groMaxSize=NUMBERS,
        forwarding=st.booleans(),
        arpIgnore=NUMBERS,
        arpAnnounce=NUMBERS,
        disableEbpfPrograms=st.booleans(),
    ),
    routes=st.lists(
        maybe(destination=PREFIXES, gateway=ADDRESSES, source=ADDRESSES, scope=NUMBERS, table=NUMBERS), max_size=2
    ),
    rules=st.lists(maybe(priority=NUMBERS, source=PREFIXES, destination=PREFIXES, table=NUMBERS), max_size=2),
    neighbors=st.lists(maybe(destination=ADDRESSES, hardwareAddr=MACS), max_size=2),
    ethtool=maybe(
        features=st.dictionaries(st.sampled_from(["tso", "gro", "nope", "highdma"]), st.booleans(), max_size=2)
    ),
)


SYSCTLS = [f"net/ipv4/conf/{i}/{k}" for i in ("all", "default", "nic1") for k in ("arp_ignore", "forwarding")]


def _host(node: TestNode) -> tuple[Any, ...]:
    """Everything about the host's network that should be the same afterwards."""
    route = node.host.route
    kept = ("name", "mtu", "mac", "is_up", "alias", "txqlen", "gso_max_size", "gro_max_size", "master")
    return (
        {link.index: tuple(getattr(link, k) for k in kept) for link in links.list_links(route)},
        {(a.index, a.cidr, a.label) for a in addresses.list_addresses(route) if a.scope == 0},
        {r for r in routes.list_routes(route) if r.protocol != routes.PROTOCOL_KERNEL},
        rules.list_rules(route),
        read_sysctls(node.host.namespace.fd, SYSCTLS),
    )


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(config=CONFIGS)
def test_parameters_cannot_reach_beyond_the_pod(new_node: Callable[[], TestNode], config: dict[str, Any]) -> None:
    node = _shared_node(new_node)
    pod = node.pod()
    before = _host(node)
    try:
        plan = node.plan("nic0", config=config)
    except DranetError:
        assert _host(node) == before
        return
    try:
        node.lifecycle.set_up(plan)
        node.lifecycle.attach("pod-1", pod.path)
        assert _host(node)[4] == before[4]
    except DranetError:
        pass
    node.lifecycle.detach(plan.uid)
    node.store.delete(plan.uid)
    assert _host(node) == before


_made: list[TestNode] = []


def _shared_node(new_node: Callable[[], TestNode]) -> TestNode:
    """One node for all examples: making one costs more than an example."""
    if not _made or not _made[-1].store.is_open:
        node = new_node()
        node.add_nic("nic0", "10.1.0.1/24", "fd00:1::1/64")
        node.add_nic("nic1", "10.2.0.1/24")
        _made.append(node)
    return _made[-1]


def test_claim_cannot_impersonate_another_nic(node: TestNode) -> None:
    other = node.link("nic1")
    with pytest.raises(DranetError, match=f"{other.mac} is the address of nic1"):
        node.plan("nic0", config={"interface": {"hardwareAddr": other.mac}})
    pod = node.attach("nic0", config={"interface": {"name": "nic1"}})
    node.run("ip", "link", "set", "nic1", "address", other.mac, where=pod)
    node.lifecycle.attach("pod-1", pod.path)  # again, as a repair would: the real nic1 stays where it is
    assert node.names() == {"nic1"}
    node.lifecycle.detach("uid-1")
    assert node.names() == {"nic0", "nic1"}
    (shown,) = node.ip("addr", "show", "nic1")
    assert [a["local"] for a in shown["addr_info"] if a["scope"] == "global"] == ["10.2.0.1"]
