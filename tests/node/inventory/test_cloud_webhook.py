"""The webhook's protocol, over TCP and over a Unix socket, with good and bad answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dranet.core.device import Version
from dranet.core.errors import InvalidInput
from dranet.node.inventory.cloud import CloudError, HttpClient, Identity, ProfileProvider
from dranet.node.inventory.cloud.webhook import Webhook, connect
from tests.node.inventory.conftest import Server

BOTH = '{"cloudProvider": true, "profileProvider": true}'
NIC = Identity(device="pci-0000-8a-00-0", interface="eth1", mac="02:00:00:00:00:01", pci="0000:8a:00.0")
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"namespace": "ml", "name": "nics", "uid": "uid-1"},
    "status": {"reservedFor": [{"resource": "pods", "name": "worker-0", "uid": "pod-1"}]},
}
DUMMY = Identity(device="dummy1", interface="dummy1")


async def test_attributes_of_every_kind_arrive_with_their_type(server: Server) -> None:
    answer = '{"a.b/s": {"string": "x"}, "a.b/i": {"int": 4}, "a.b/b": {"bool": false}, "a.b/v": {"version": "1.2.3"}}'
    server.answer({"/health": BOTH, "/GetDeviceAttributes": answer})
    webhook = await connect(server.url)
    assert await webhook.refresh([NIC])
    attributes = webhook.attributes(NIC)
    assert attributes == {"a.b/s": "x", "a.b/i": 4, "a.b/b": False, "a.b/v": "1.2.3"}
    assert isinstance(attributes["a.b/v"], Version)


async def test_attributes_are_asked_for_by_interface_and_configuration_by_device(server: Server) -> None:
    server.answer({"/health": BOTH, "/GetDeviceAttributes": "{}", "/GetDeviceConfig": "{}"})
    webhook = await connect(server.url)
    await webhook.refresh([NIC])
    await webhook.config(NIC)
    identifiers = {"mac_address": "02:00:00:00:00:01", "pci_address": "0000:8a:00.0"}
    assert [request.json() for request in server.requests[1:]] == [
        {**identifiers, "name": "eth1"},
        {**identifiers, "name": "pci-0000-8a-00-0"},
    ]


async def test_identifiers_that_a_device_lacks_are_left_out(server: Server) -> None:
    server.answer({"/health": BOTH, "/GetDeviceAttributes": "{}"})
    await (await connect(server.url)).refresh([DUMMY])
    assert server.requests[-1].json() == {"name": "dummy1"}


async def test_a_scan_never_waits_for_the_webhook(server: Server) -> None:
    server.answer({"/health": BOTH})
    webhook = await connect(server.url)
    assert webhook.attributes(NIC) == {}
    assert len(server.requests) == 1


async def test_an_unchanged_answer_is_no_change(server: Server) -> None:
    server.answer({"/health": BOTH, "/GetDeviceAttributes": '{"a.b/s": {"string": "x"}}'})
    webhook = await connect(server.url)
    assert [await webhook.refresh([NIC]), await webhook.refresh([NIC])] == [True, False]


async def test_one_bad_answer_spoils_neither_the_others_nor_what_was_known(server: Server) -> None:
    def handle(request: Any) -> Any:
        if request.path == "/health":
            return BOTH
        broken = request.json()["name"] == "dummy1" and len(server.requests) > 3
        return (500, "no luck") if broken else '{"a.b/n": {"int": %d}}' % len(server.requests)

    server.handler = handle
    webhook = await connect(server.url)
    await webhook.refresh([DUMMY, NIC])
    first = webhook.attributes(DUMMY)
    with pytest.raises(CloudError, match="no luck"):
        await webhook.refresh([DUMMY, NIC])
    assert webhook.attributes(DUMMY) == first != {}
    latest = webhook.attributes(NIC)["a.b/n"]
    assert isinstance(latest, int) and latest > 3


@pytest.mark.parametrize(
    "answer", ["[]", "nonsense", '{"a.b/x": 4}', '{"a.b/x": {"string": 4}}', '{"a.b/x": {"string": "a", "int": 1}}']
)
async def test_what_is_no_attribute_is_refused(server: Server, answer: str) -> None:
    server.answer({"/health": BOTH, "/GetDeviceAttributes": answer})
    webhook = await connect(server.url)
    with pytest.raises(CloudError):
        await webhook.refresh([NIC])
    assert webhook.attributes(NIC) == {}


async def test_an_empty_configuration_is_still_an_answer(server: Server) -> None:
    server.answer({"/health": BOTH, "/GetDeviceConfig": "{}"})
    assert await (await connect(server.url)).config(NIC) == {}


async def test_a_profile_is_asked_for_with_device_configuration_and_claim_as_old_and_new_webhooks_want_it(
    server: Server,
) -> None:
    server.answer({"/health": BOTH, "/GetProfileConfig": '{"interface": {"addresses": ["10.200.200.200/24"]}}'})
    webhook = await connect(server.url)
    answer = await webhook.get_profile(DUMMY, CLAIM, {"profile": "python-profile"})
    assert answer == {"interface": {"addresses": ["10.200.200.200/24"]}}
    assert server.requests[-1].json() == {
        "device": {"name": "dummy1"},
        "claim_uid": "uid-1",
        "claim": CLAIM,
        "config": {"profile": "python-profile"},
    }


async def test_releasing_a_profile_does_not_read_the_answer(server: Server) -> None:
    server.answer({"/health": BOTH, "/ReleaseProfileConfig": "thanks"})
    await (await connect(server.url)).release_profile(DUMMY, CLAIM, {})
    assert server.requests[-1].path == "/ReleaseProfileConfig"
    assert server.requests[-1].json() == {
        "device": {"name": "dummy1"},
        "claim_uid": "uid-1",
        "claim": CLAIM,
        "config": {},
    }


async def test_profiles_that_the_webhook_does_not_offer_are_refused_without_asking(server: Server) -> None:
    server.answer({"/health": '{"cloudProvider": true, "profileProvider": false}'})
    webhook = await connect(server.url)
    with pytest.raises(CloudError, match="profileProvider is false"):
        await webhook.get_profile(DUMMY, CLAIM, {})
    assert len(server.requests) == 1


async def test_the_webhook_is_a_profile_provider() -> None:
    assert isinstance(Webhook(HttpClient("http://127.0.0.1:1"), clouds=True, profiles=True), ProfileProvider)


async def test_a_webhook_may_listen_on_a_unix_socket(server: Server, tmp_path: Path) -> None:
    server.answer({"/health": BOTH})
    path = tmp_path / "hook.sock"
    async with await asyncio.start_unix_server(server.serve, str(path)):
        webhook = await connect(f"unix://{path}")
    assert webhook.clouds and webhook.profiles
    assert server.requests[0].headers["host"] == "localhost"


async def test_a_webhook_that_is_not_well_is_an_error_with_its_words(server: Server) -> None:
    server.answer({"/health": (503, "database is down")})
    with pytest.raises(CloudError, match="503: database is down"):
        await connect(server.url)


async def test_a_webhook_that_hangs_is_given_up(server: Server) -> None:
    server.handler = lambda request: None
    with pytest.raises(CloudError, match="no answer within"):
        await connect(server.url, timeout=0.05)


@pytest.mark.parametrize("url", ["", "ftp://x", "127.0.0.1:80", "unix://"])
async def test_an_unusable_url_says_what_to_write(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"--webhook-url|http://"):
        await connect(url)


async def test_an_answer_without_an_end_is_an_error(server: Server) -> None:
    async def cut_short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        writer.close()

    listening = await asyncio.start_server(cut_short, "127.0.0.1", 0)
    url = "http://{}:{}".format(*listening.sockets[0].getsockname())
    with pytest.raises(CloudError):
        await HttpClient(url).get("/")
    listening.close()
