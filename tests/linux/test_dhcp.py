"""The DHCP client against a small server of our own, each in its namespace, over a real pair of links."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import TypeVar

import msgspec
import pytest

from dranet.linux import addresses, links
from dranet.linux.dhcp import DhcpClient, DhcpError, Lease, LeaseRefused
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from tests.dhcp_server import ACK, DISCOVER, NAK, OFFER, RELEASE, REQUEST, Server, obliging, reply
from tests.linux.conftest import MakeRoute

T = TypeVar("T")


Serve = Callable[..., Server]


@pytest.fixture
def network(far: Namespace, veth: Link, make_route: MakeRoute) -> Namespace:
    """The server's namespace, with the address 10.0.0.254."""
    index = veth.index - 1
    address = addresses.add(addresses.from_cidr("10.0.0.254/24", index, broadcast="10.0.0.255"))
    assert not any(make_route(far).batch([links.change(1, up=True), address, links.change(index, up=True)]))
    return far


@pytest.fixture
def serve(network: Namespace) -> Iterator[Serve]:
    with ExitStack() as started:
        yield lambda behaviour=obliging: started.enter_context(closing(Server(network, behaviour)))


@pytest.fixture
def client(netns: Namespace, veth: Link, network: Namespace) -> Iterator[DhcpClient]:
    with DhcpClient("v0", veth.mac, namespace_fd=netns.fd) as opened:
        yield opened


def steps(heard: Iterable[T]) -> list[T]:
    """One after the other; what is not answered within half a second, by a busy machine, is said again."""
    return [step for step, _ in itertools.groupby(heard)]


def test_a_lease_is_obtained_on_a_link_without_address(client: DhcpClient, serve: Serve) -> None:
    server = serve()
    lease = client.obtain(5)
    assert (lease.address, lease.prefix, lease.server) == ("10.0.0.7", 24, "10.0.0.254")
    assert (lease.lifetime, lease.renew_after, lease.rebind_after) == (600, 300, 525)
    assert (lease.effective_routes, lease.mtu) == ((("0.0.0.0/0", "10.0.0.254"),), 1400)
    assert steps(kind for kind, _ in server.heard) == [DISCOVER, REQUEST]


def test_a_lost_discover_is_sent_again(client: DhcpClient, serve: Serve) -> None:
    seen: list[int] = []

    def deaf_at_first(kind: int, request: bytes) -> list[bytes]:
        seen.append(kind)
        return obliging(kind, request) if len(seen) > 1 else []

    serve(deaf_at_first)
    assert client.obtain(5).address == "10.0.0.7"
    assert seen[:2] == [DISCOVER, DISCOVER]
    assert steps(seen) == [DISCOVER, REQUEST]


def test_without_server_it_fails_within_its_budget_and_says_so(client: DhcpClient) -> None:
    with pytest.raises(DhcpError, match=r"no DHCP server answered the DISCOVER on v0 within 0\.2 s; is the link up"):
        client.obtain(0.2)


def test_a_refusal_is_distinguished_from_silence(client: DhcpClient, serve: Serve) -> None:
    serve(lambda kind, request: [reply(request, OFFER if kind == DISCOVER else NAK)])
    with pytest.raises(LeaseRefused, match=r"the DHCP server 10\.0\.0\.254 refused the lease on v0"):
        client.obtain(5)


def test_answers_to_another_client_are_ignored(client: DhcpClient, serve: Serve) -> None:
    def confusing(kind: int, request: bytes) -> list[bytes]:
        stranger = bytes(b ^ 0xFF for b in request[4:8])
        return [reply(request, ACK, "10.0.0.66", stranger), b"nonsense", *obliging(kind, request)]

    serve(confusing)
    assert client.obtain(5).address == "10.0.0.7"


def test_a_grant_that_lacks_the_essentials_is_an_error(client: DhcpClient, serve: Serve) -> None:
    serve(
        lambda kind, request: [
            reply(request, OFFER if kind == DISCOVER else ACK, "0.0.0.0" if kind == REQUEST else "10.0.0.7")
        ]
    )
    with pytest.raises(DhcpError, match="without a usable mask, lease time or server identifier"):
        client.obtain(5)


@pytest.fixture
def addressed(client: DhcpClient, route: NetlinkSocket, veth: Link) -> DhcpClient:
    """The client with the address of its lease on the link, as in a pod."""
    route.request(addresses.add(addresses.from_cidr("10.0.0.7/24", veth.index)))
    return client


def test_a_renewal_goes_to_the_server_from_the_leased_address(addressed: DhcpClient, serve: Serve) -> None:
    server = serve()
    lease = addressed.obtain(5)
    assert addressed.renew(lease, 5) == lease
    assert steps(server.heard) == [(DISCOVER, "0.0.0.0"), (REQUEST, "0.0.0.0"), (REQUEST, "10.0.0.7")]


def test_a_renewal_asks_no_other_server(addressed: DhcpClient, serve: Serve) -> None:
    server = serve()
    lease = msgspec.structs.replace(addressed.obtain(5), server="10.0.0.253")  # there is none any more
    asked = len(server.heard)
    with pytest.raises(DhcpError, match=r"no DHCP server answered the REQUEST to 10\.0\.0\.253 to renew 10\.0\.0\.7"):
        addressed.renew(lease, 1)
    assert len(server.heard) == asked
    assert addressed.rebind(lease, 5).server == "10.0.0.254"


def _renewing(answers: Callable[[bytes], list[bytes]]) -> Callable[[int, bytes], list[bytes]]:
    """A server that grants a lease, and gives these answers to its renewal."""
    return lambda kind, request: answers(request) if request[12:16] != bytes(4) else obliging(kind, request)


def test_another_server_cannot_refuse_a_renewal(addressed: DhcpClient, serve: Serve) -> None:
    serve(_renewing(lambda request: [reply(request, NAK, server="10.0.0.66"), reply(request, ACK)]))
    lease = addressed.obtain(5)
    assert addressed.renew(lease, 5) == lease


def test_any_server_can_refuse_a_rebinding(addressed: DhcpClient, serve: Serve) -> None:
    serve(_renewing(lambda request: [reply(request, NAK, server="10.0.0.66")]))
    with pytest.raises(LeaseRefused, match=r"10\.0\.0\.66 refused the lease"):
        addressed.rebind(addressed.obtain(5), 5)


@pytest.mark.parametrize("ask", [DhcpClient.renew, DhcpClient.rebind])
def test_a_grant_of_another_address_renews_nothing(
    addressed: DhcpClient, serve: Serve, ask: Callable[[DhcpClient, Lease, float], Lease]
) -> None:
    serve(_renewing(lambda request: [reply(request, ACK, "10.0.0.66")]))
    lease = addressed.obtain(5)
    with pytest.raises(DhcpError, match="no DHCP server answered the REQUEST"):
        ask(addressed, lease, 1)


def test_a_broadcast_refusal_of_the_server_is_heard(addressed: DhcpClient, serve: Serve) -> None:
    """RFC 2131 4.3.2: a server without a relay in between broadcasts its NAK."""
    serve(_renewing(lambda request: [reply(request, NAK)])).broadcasts = True
    with pytest.raises(LeaseRefused):
        addressed.renew(addressed.obtain(5), 5)


def test_a_renewal_can_be_refused(addressed: DhcpClient, serve: Serve) -> None:
    renewing = threading.Event()
    serve(lambda kind, request: [reply(request, NAK)] if renewing.is_set() else obliging(kind, request))
    lease = addressed.obtain(5)
    renewing.set()
    with pytest.raises(LeaseRefused):
        addressed.renew(lease, 5)


def test_a_release_is_sent_to_the_server(client: DhcpClient, serve: Serve) -> None:
    server = serve()
    lease = client.obtain(5)
    server.received.clear()
    client.release(lease)
    assert server.received.wait(5)
    assert server.heard[-1] == (RELEASE, "10.0.0.7")


def test_a_link_that_is_down_says_so(client: DhcpClient, route: NetlinkSocket, veth: Link) -> None:
    route.request(links.change(veth.index, up=False))
    with pytest.raises(DhcpError, match="cannot send DHCP packets on v0: Network is down; is it up"):
        client.obtain(1)


def test_an_interface_that_is_not_there_says_so(netns: Namespace) -> None:
    with pytest.raises(DhcpError, match="cannot listen for DHCP on nothere: No such device"):
        DhcpClient("nothere", "02:00:00:00:00:01", namespace_fd=netns.fd)
