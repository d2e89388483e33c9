"""Logs: whom a line is about, in both forms."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from dranet.core.logs import log_context
from dranet.core.names import ClaimRef
from dranet.node.server import process
from dranet.testing.waiting import until

from .daemon_bench import bench

POD, CLAIM = ClaimRef("team", "trainer-0", "p-1"), ClaimRef("team", "nics", "c-1")


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("dranet")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_json_lines_have_pod_claim_device_and_node(capfd: pytest.CaptureFixture[str]) -> None:
    process.set_up_logging("json", 2, "node-1")
    with log_context(pod=POD), log_context(claim=CLAIM, device="nic0"):
        logging.getLogger("dranet.linux.links").info("up")
    logging.getLogger("dranet").info("after")
    inside, after = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert {key: inside[key] for key in ("node", "pod", "pod_uid", "claim", "claim_uid", "device", "message")} == {
        "node": "node-1",
        "pod": "team/trainer-0",
        "pod_uid": "p-1",
        "claim": "team/nics",
        "claim_uid": "c-1",
        "device": "nic0",
        "message": "up",
    }
    assert not {"pod", "claim", "device"} & set(after)


def test_text_lines_end_with_the_context(capfd: pytest.CaptureFixture[str]) -> None:
    process.set_up_logging("text", 2)
    with log_context(pod=POD, device="nic0"):
        logging.getLogger("dranet.node").info("is up")
    assert capfd.readouterr().err.strip().endswith("I node: is up pod=team/trainer-0 device=nic0")


async def test_context_follows_into_tasks_and_threads(capfd: pytest.CaptureFixture[str]) -> None:
    process.set_up_logging("text", 2)

    async def work() -> None:
        await asyncio.to_thread(logging.getLogger("dranet").info, "done")

    with log_context(claim=CLAIM):
        task = asyncio.create_task(work())
    await task
    assert "done claim=team/nics" in capfd.readouterr().err


@pytest.mark.parametrize(("verbosity", "shown"), [(2, False), (3, False), (4, True), (5, True)])
def test_verbosity_four_shows_debug_lines(verbosity: int, shown: bool, capfd: pytest.CaptureFixture[str]) -> None:
    process.set_up_logging("text", verbosity)
    logging.getLogger("dranet").debug("a detail")
    logging.getLogger("a.library").debug("a frame")
    written = capfd.readouterr().err
    assert ("a detail" in written) is shown
    assert "a frame" not in written


@pytest.mark.usefixtures("may_make_namespaces")
async def test_driver_logs_pod_device_and_claim_as_fields() -> None:
    async with bench(flags=["--log-format=json"]) as b:
        pod = await b.start("nic0")
        log = b.node.folder / "log" / "driver.log"
        await until(lambda: "Attached device" in log.read_text())
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        (arrived,) = (line for line in lines if line["message"].startswith("Attached device"))
        assert (arrived["node"], arrived["pod"], arrived["claim"], arrived["device"]) == (
            "node-1",
            f"default/{pod.name}",
            f"default/{pod.claims[0].name}",
            "nic0",
        )
