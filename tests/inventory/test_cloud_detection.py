"""Which cloud is it, asked of servers that are absent, slow or wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dranet.inventory.cloud import Cloud, CloudContext, Firmware, Patience, find_provider, gce, installed_clouds
from dranet.inventory.cloud.detection import METADATA_URL_VARIABLE
from dranet.inventory.cloud.installed import announced

QUICK = Patience(guess=0.3, named=0.3, pause=0.05)
"""Where nobody answers, and the patience is all that ends it."""
PATIENT = Patience(guess=60, named=60, pause=0.05)
"""Where somebody answers, in whatever time this machine takes."""
GCE = {
    "/computeMetadata/v1/instance/machine-type": (200, "x/e2-small", {"Metadata-Flavor": "Google"}),
    "/computeMetadata/v1/instance/network-interfaces/": "[]",
}
AWS = {"/latest/dynamic/instance-identity/document": '{"instanceType": "p5.48xlarge"}'}


async def test_the_cloud_that_answers_is_found(server: Any) -> None:
    server.answer(AWS)
    found = await find_provider(CloudContext(metadata_url=server.url), patience=PATIENT)
    assert found.provider is not None and found.provider.name == "AWS"


async def test_every_built_in_cloud_is_announced_as_an_entry_point() -> None:
    assert [cloud.name for cloud in installed_clouds()][:6] == ["GCE", "AWS", "AZURE", "OKE", "ALIBABA", "CKS"]


def test_a_cloud_is_announced_by_the_name_it_gives_itself() -> None:
    assert sorted(announced()) == sorted(cloud.name for cloud in installed_clouds())


async def test_a_package_that_announces_nonsense_costs_the_cloud_attributes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced_by = tmp_path / "broken-1.0.dist-info"
    announced_by.mkdir()
    (announced_by / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (announced_by / "entry_points.txt").write_text("[dranet.cloud_providers]\nBROKEN = json\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = await find_provider(CloudContext(), "GCE", patience=QUICK)
    assert found.provider is None
    assert "BROKEN cannot be used: json has no CLOUD" in found.problems[0]


async def test_outside_any_cloud_nothing_is_found_and_nothing_is_complained_about(closed_url: str) -> None:
    assert await find_provider(CloudContext(metadata_url=closed_url), patience=PATIENT) == (None, ())


async def test_servers_that_never_answer_are_asked_at_the_same_time(server: Any) -> None:
    server.handler = lambda request: None
    asking = asyncio.create_task(find_provider(CloudContext(metadata_url=server.url), patience=PATIENT))
    async with asyncio.timeout(30):
        while server.most_waiting < 5:  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.01)
    assert not asking.done()
    asking.cancel()


async def test_servers_that_never_answer_are_given_up(server: Any) -> None:
    server.handler = lambda request: None
    assert (await find_provider(CloudContext(metadata_url=server.url), patience=QUICK)).provider is None


def test_a_guess_is_over_in_less_than_three_seconds() -> None:
    assert Patience().guess < 3


async def test_a_server_that_says_yes_to_everything_is_no_cloud(server: Any) -> None:
    server.handler = lambda request: "<html>welcome to the hotel network</html>"
    assert (await find_provider(CloudContext(metadata_url=server.url), patience=PATIENT)).provider is None


@pytest.mark.parametrize("hint", ["NONE", "none"])
async def test_nobody_is_asked_where_the_hint_is_none(server: Any, hint: str) -> None:
    assert await find_provider(CloudContext(metadata_url=server.url), hint, patience=QUICK) == (None, ())
    assert server.requests == []


async def test_only_the_named_cloud_is_asked(server: Any) -> None:
    server.answer({**GCE, **AWS})
    found = await find_provider(CloudContext(metadata_url=server.url), "AWS", patience=PATIENT)
    assert found.provider is not None and found.provider.name == "AWS"
    assert not [request for request in server.requests if "computeMetadata" in request.path]


async def test_a_named_cloud_that_does_not_answer_is_a_problem_in_words(closed_url: str) -> None:
    found = await find_provider(CloudContext(metadata_url=closed_url), "GCE", patience=QUICK)
    assert found.provider is None
    assert "GCE" in found.problems[0] and "without cloud attributes" in found.problems[0]


async def test_an_unknown_hint_is_a_problem_that_names_the_known_ones() -> None:
    found = await find_provider(CloudContext(), "gce", patience=PATIENT)
    assert found.provider is None
    assert "GCE" in found.problems[0] and "webhook" in found.problems[0]


async def test_a_named_cloud_is_asked_again_until_it_is_ready(server: Any) -> None:
    def starting(request: Any) -> Any:
        ready = len(server.requests) > 2
        return GCE.get(request.path.partition("?")[0], (404, "")) if ready else (503, "starting")

    server.handler = starting
    found = await find_provider(CloudContext(metadata_url=server.url), "GCE", patience=Patience(60, 60, 0.01))
    assert found.provider is not None


async def test_the_firmware_decides_where_it_names_the_cloud(server: Any) -> None:
    server.answer({**GCE, **AWS})
    context = CloudContext(metadata_url=server.url, firmware=Firmware(vendor="Amazon EC2"))
    found = await find_provider(context, patience=PATIENT)
    assert found.provider is not None and found.provider.name == "AWS"


async def test_if_several_answer_the_order_is_fixed(server: Any) -> None:
    server.answer({**GCE, **AWS})
    found = await find_provider(CloudContext(metadata_url=server.url), patience=PATIENT)
    assert found.provider is not None and found.provider.name == "GCE"


async def test_others_can_bring_their_own_cloud() -> None:
    class Mine:
        name = "MINE"

    async def detect(context: CloudContext) -> Any:
        return Mine()

    cloud = Cloud("MINE", detect)
    found = await find_provider(CloudContext(), clouds=[cloud], patience=PATIENT)
    assert found.provider is not None and found.provider.name == "MINE"


async def test_the_environment_can_name_another_metadata_server(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answer(GCE)
    monkeypatch.setenv(METADATA_URL_VARIABLE, server.url)
    found = await find_provider(CloudContext(), patience=PATIENT)
    assert found.provider is not None and found.provider.name == "GCE"


async def test_gce_honours_its_own_variable(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answer(GCE)
    monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
    assert await gce.detect(CloudContext(timeout=60)) is not None


async def test_the_webhook_as_cloud_needs_a_url() -> None:
    found = await find_provider(CloudContext(), "webhook", patience=PATIENT)
    assert found.problems == ("the cloud provider webhook needs --webhook-url",)


async def test_a_webhook_is_found_last(server: Any, closed_url: str) -> None:
    server.answer({"/health": '{"cloudProvider": true, "profileProvider": false}'})
    context = CloudContext(metadata_url=closed_url, webhook_url=server.url)
    found = await find_provider(context, patience=PATIENT)
    assert found.provider is not None and found.provider.name == "webhook"


async def test_a_webhook_that_is_no_cloud_provider_is_asked_once_and_named(server: Any) -> None:
    server.answer({"/health": '{"cloudProvider": false, "profileProvider": true}'})
    found = await find_provider(CloudContext(webhook_url=server.url), "webhook", patience=PATIENT)
    assert found.provider is None
    assert "does not offer to be one (cloudProvider is false)" in found.problems[0]
    assert len(server.requests) == 1
