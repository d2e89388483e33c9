"""Upgrade and downgrade by one version with running pods: the previous driver, from the history, and this one in turn.

The previous driver is the last commit that wrote rows of format 1. In a tree without history, `test_stored_records.py`
still shows that rows are read in both directions.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import subprocess
import tarfile
from pathlib import Path

import pytest

from dranet.testing.node import SandboxPod
from dranet.testing.waiting import until

from .daemon_bench import Bench, bench

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

BEFORE = "9e94aaa"
ROOT = Path(__file__).parents[3]
CONFIG = {
    "interface": {"name": "dranet0", "addresses": ["10.9.0.9/24"], "mtu": 1400},
    "ethtool": {"features": {"tso": False}},
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the source of the driver before is."""
    command = ["git", "-C", str(ROOT), "archive", BEFORE, "src/dranet"]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"the history is not here: {made.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as tree:
        tree.extractall(folder, filter="data")
    return str(folder / "src")


async def change_driver(b: Bench, **environment: str) -> None:
    await b.kill_driver()
    await b.node.start_driver(**environment)


def holds(b: Bench, pod: SandboxPod) -> bool:
    """Whether the driver has opened the pod's namespace, which CRI-O removes before it tells of a stop. The driver
    before does not log when it has looked at all pods."""
    assert b.node.driver is not None and pod.netns is not None
    inode = os.stat(pod.path).st_ino
    for opened in Path(f"/proc/{b.driver.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            if opened.stat().st_ino == inode:
                return True
    return False


def is_of_first_version(b: Bench) -> bool:
    with sqlite3.connect(b.node.folder / "dranet.db") as db:
        rows = [json.loads(raw) for (raw,) in db.execute("SELECT plan FROM claims")]
    db.close()
    assert len(rows) == 2
    return all("version" not in row for row in rows)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_pods_survive_upgrade_and_downgrade(before: str, direction: str) -> None:
    old: dict[str, str] = {"PYTHONPATH": before}
    first, second = (old, {}) if direction == "up" else ({}, old)
    async with bench(start=False) as b:
        was = b.picture("nic0"), b.picture("nic1")
        b.node.flags.append(f"--db-path={b.node.folder / 'dranet.db'}")  # the default name, where both look for it
        await b.node.start_driver(**old)
        await change_driver(b, **first)
        await until(lambda: b.published() == ["nic0", "nic1"])
        running, waiting = b.claim("nic0", parameters=CONFIG), b.claim("nic1", parameters=CONFIG)
        await b.node.start_pod(running)
        await b.node.prepare(waiting)

        assert is_of_first_version(b) is (direction == "up")

        await change_driver(b, **second)
        assert b.names(running.netns) == {"dranet0"}
        await b.node.run_sandbox(waiting)
        assert b.names(waiting.netns) == {"dranet0"}

        await change_driver(b, **first)  # and back again
        assert list((await b.node.create_container(running)).environment.values()) == ["dranet0"]
        await until(lambda: holds(b, running) and holds(b, waiting))
        await b.node.stop_pod(running)
        await b.node.stop_pod(waiting)
        assert (b.picture("nic0"), b.picture("nic1")) == was
        again = await b.start("nic0")
        assert b.names(again.netns) == {"nic0"}
