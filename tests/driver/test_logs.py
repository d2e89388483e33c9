"""Logs: whom a line is about, in both forms."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from dranet.driver.log_fields import about
from dranet.driver.serving import logs
from dranet.model.names import ClaimRef

from .daemon_bench import bench, until

POD, CLAIM = ClaimRef("team", "trainer-0", "p-1"), ClaimRef("team", "nics", "c-1")


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("dranet")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_in_json_pod_claim_device_and_node_are_fields(capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", 2, "node-1")
    with about(pod=POD), about(claim=CLAIM, device="card0"):
        logging.getLogger("dranet.kernel.links").info("up")
    logging.getLogger("dranet").info("after")
    inside, after = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert {key: inside[key] for key in ("node", "pod", "pod_uid", "claim", "claim_uid", "device", "message")} == {
        "node": "node-1",
        "pod": "team/trainer-0",
        "pod_uid": "p-1",
        "claim": "team/nics",
        "claim_uid": "c-1",
        "device": "card0",
        "message": "up",
    }
    assert not {"pod", "claim", "device"} & set(after)


def test_as_text_they_stand_after_the_message(capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", 2)
    with about(pod=POD, device="card0"):
        logging.getLogger("dranet.driver").info("is up")
    assert capfd.readouterr().err.strip().endswith("I driver: is up [pod=team/trainer-0 device=card0]")


async def test_they_follow_the_work_into_tasks_and_threads(capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", 2)

    async def work() -> None:
        await asyncio.to_thread(logging.getLogger("dranet").info, "done")

    with about(claim=CLAIM):
        task = asyncio.create_task(work())
    await task
    assert "done [claim=team/nics]" in capfd.readouterr().err


@pytest.mark.parametrize(("verbosity", "shown"), [(2, False), (3, False), (4, True), (5, True)])
def test_details_are_shown_from_four_on(verbosity: int, shown: bool, capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", verbosity)
    logging.getLogger("dranet").debug("a detail")
    logging.getLogger("a.library").debug("a frame")
    written = capfd.readouterr().err
    assert ("a detail" in written) is shown
    assert "a frame" not in written


@pytest.mark.usefixtures("may_make_namespaces")
async def test_the_whole_driver_says_in_fields_which_pod_got_which_device_by_which_claim() -> None:
    async with bench(flags=["--log-format=json"]) as b:
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        assert b.node.driver is not None
        log = b.node.folder / "log" / "driver.log"
        await until(lambda: "is in the pod" in log.read_text())
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        (arrived,) = (line for line in lines if line["message"].startswith("is in the pod"))
        assert (arrived["node"], arrived["pod"], arrived["claim"], arrived["device"]) == (
            "node-1",
            f"default/{pod.name}",
            f"default/{pod.claims[0].name}",
            "card0",
        )
