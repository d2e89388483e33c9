"""Which cloud is it, asked of servers that are absent, slow or wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dranet.core.cloud_plugins import registered_names
from dranet.node.inventory.cloud import (
    Cloud,
    CloudContext,
    DetectionTimeouts,
    Firmware,
    find_provider,
    gce,
    installed_clouds,
)
from dranet.node.inventory.cloud.detection import METADATA_URL_VARIABLE
from tests.node.inventory.conftest import Answer, Server

QUICK = DetectionTimeouts(any_cloud=0.3, named_cloud=0.3, retry_delay=0.05)
"""For servers that do not answer: only the timeout ends a request."""
PATIENT = DetectionTimeouts(any_cloud=60, named_cloud=60, retry_delay=0.05)
"""For servers that answer, however slow this machine is."""
GCE: dict[str, Answer] = {
    "/computeMetadata/v1/instance/machine-type": (200, "x/e2-small", {"Metadata-Flavor": "Google"}),
    "/computeMetadata/v1/instance/network-interfaces/": "[]",
}
AWS = {"/latest/dynamic/instance-identity/document": '{"instanceType": "p5.48xlarge"}'}


async def test_the_cloud_that_answers_is_found(server: Server) -> None:
    server.answer(AWS)
    found = await find_provider(CloudContext(metadata_url=server.url), timeouts=PATIENT)
    assert found.provider is not None and found.provider.name == "AWS"


async def test_every_built_in_cloud_is_announced_as_an_entry_point() -> None:
    assert [cloud.name for cloud in installed_clouds()][:6] == ["GCE", "AWS", "AZURE", "OKE", "ALIBABA", "CKS"]


def test_a_cloud_is_announced_by_the_name_it_gives_itself() -> None:
    assert sorted(registered_names()) == sorted(cloud.name for cloud in installed_clouds())


async def test_a_package_that_announces_nonsense_costs_the_cloud_attributes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced_by = tmp_path / "broken-1.0.dist-info"
    announced_by.mkdir()
    (announced_by / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (announced_by / "entry_points.txt").write_text("[dranet.cloud_providers]\nBROKEN = json\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = await find_provider(CloudContext(), "GCE", timeouts=QUICK)
    assert found.provider is None
    assert "BROKEN is not usable: json has no CLOUD" in found.problems[0]


async def test_outside_any_cloud_nothing_is_found_and_nothing_is_complained_about(closed_url: str) -> None:
    assert await find_provider(CloudContext(metadata_url=closed_url), timeouts=PATIENT) == (None, ())


async def test_servers_that_never_answer_are_asked_at_the_same_time(server: Server) -> None:
    server.handler = lambda request: None
    asking = asyncio.create_task(find_provider(CloudContext(metadata_url=server.url), timeouts=PATIENT))
    async with asyncio.timeout(30):
        while server.most_waiting < 5:  # noqa: ASYNC110 (the server has no event for it)
            await asyncio.sleep(0.01)
    assert not asking.done()
    asking.cancel()


async def test_servers_that_never_answer_are_given_up(server: Server) -> None:
    server.handler = lambda request: None
    assert (await find_provider(CloudContext(metadata_url=server.url), timeouts=QUICK)).provider is None


def test_detection_without_a_hint_takes_less_than_three_seconds() -> None:
    assert DetectionTimeouts().any_cloud < 3


async def test_a_server_that_says_yes_to_everything_is_no_cloud(server: Server) -> None:
    server.handler = lambda request: "<html>welcome to the hotel network</html>"
    assert (await find_provider(CloudContext(metadata_url=server.url), timeouts=PATIENT)).provider is None


@pytest.mark.parametrize("hint", ["NONE", "none"])
async def test_nobody_is_asked_where_the_hint_is_none(server: Server, hint: str) -> None:
    assert await find_provider(CloudContext(metadata_url=server.url), hint, timeouts=QUICK) == (None, ())
    assert server.requests == []


async def test_only_the_named_cloud_is_asked(server: Server) -> None:
    server.answer({**GCE, **AWS})
    found = await find_provider(CloudContext(metadata_url=server.url), "AWS", timeouts=PATIENT)
    assert found.provider is not None and found.provider.name == "AWS"
    assert not [request for request in server.requests if "computeMetadata" in request.path]


async def test_a_named_cloud_that_does_not_answer_is_a_problem_as_text(closed_url: str) -> None:
    found = await find_provider(CloudContext(metadata_url=closed_url), "GCE", timeouts=QUICK)
    assert found.provider is None
    assert "GCE" in found.problems[0] and "without cloud attributes" in found.problems[0]


async def test_an_unknown_hint_is_a_problem_that_names_the_known_ones() -> None:
    found = await find_provider(CloudContext(), "gce", timeouts=PATIENT)
    assert found.provider is None
    assert "GCE" in found.problems[0] and "webhook" in found.problems[0]


async def test_a_named_cloud_is_asked_again_until_it_is_ready(server: Server) -> None:
    def starting(request: Any) -> Any:
        ready = len(server.requests) > 2
        return GCE.get(request.path.partition("?")[0], (404, "")) if ready else (503, "starting")

    server.handler = starting
    found = await find_provider(CloudContext(metadata_url=server.url), "GCE", timeouts=DetectionTimeouts(60, 60, 0.01))
    assert found.provider is not None


async def test_the_firmware_decides_where_it_names_the_cloud(server: Server) -> None:
    server.answer({**GCE, **AWS})
    context = CloudContext(metadata_url=server.url, firmware=Firmware(vendor="Amazon EC2"))
    found = await find_provider(context, timeouts=PATIENT)
    assert found.provider is not None and found.provider.name == "AWS"


async def test_if_several_answer_the_order_is_fixed(server: Server) -> None:
    server.answer({**GCE, **AWS})
    found = await find_provider(CloudContext(metadata_url=server.url), timeouts=PATIENT)
    assert found.provider is not None and found.provider.name == "GCE"


async def test_others_can_bring_their_own_cloud() -> None:
    class Mine:
        name = "MINE"

    async def detect(context: CloudContext) -> Any:
        return Mine()

    cloud = Cloud("MINE", detect)
    found = await find_provider(CloudContext(), clouds=[cloud], timeouts=PATIENT)
    assert found.provider is not None and found.provider.name == "MINE"


async def test_the_environment_can_name_another_metadata_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer(GCE)
    monkeypatch.setenv(METADATA_URL_VARIABLE, server.url)
    found = await find_provider(CloudContext(), timeouts=PATIENT)
    assert found.provider is not None and found.provider.name == "GCE"


async def test_gce_honours_its_own_variable(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answer(GCE)
    monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
    assert await gce.detect(CloudContext(timeout=60)) is not None


async def test_the_webhook_as_cloud_needs_a_url() -> None:
    found = await find_provider(CloudContext(), "webhook", timeouts=PATIENT)
    assert found.problems == ("the cloud provider webhook needs --webhook-url",)


async def test_a_webhook_is_found_last(server: Server, closed_url: str) -> None:
    server.answer({"/health": '{"cloudProvider": true, "profileProvider": false}'})
    context = CloudContext(metadata_url=closed_url, webhook_url=server.url)
    found = await find_provider(context, timeouts=PATIENT)
    assert found.provider is not None and found.provider.name == "webhook"


async def test_a_webhook_that_is_no_cloud_provider_is_asked_once_and_named(server: Server) -> None:
    server.answer({"/health": '{"cloudProvider": false, "profileProvider": true}'})
    found = await find_provider(CloudContext(webhook_url=server.url), "webhook", timeouts=PATIENT)
    assert found.provider is None
    assert "is not a cloud provider (cloudProvider is false)" in found.problems[0]
    assert len(server.requests) == 1
