"""`dranet init --cloud gke --no-dry-run` against a server with the rules of Google's APIs.

All of it is taken, and what is made is what the machines need: a network for every NIC, and packets of the right size.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dranet.cli.init import GKE_NICS
from tests.cli.google_apis import NETWORK_CARDS, Google, serving

Init = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def google() -> Google:
    return Google()


@pytest.fixture
def init(google: Google, tmp_path: Path) -> Iterator[Init]:
    (tmp_path / "gcloud").write_text(
        f'#!/bin/sh\nexec {sys.executable} -I -S {Path(__file__).with_name("gcloud.py")} "$@"\n'
    )
    for name in ("helm", "kubectl"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    for tool in tmp_path.iterdir():
        tool.chmod(0o755)
    with serving(google) as address:
        apis = {f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api}": address for api in ("COMPUTE", "CONTAINER")}
        environment = {**os.environ, **apis, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = [sys.executable, "-m", "dranet", "init", "--cloud", "gke", "--no-dry-run"]

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([*command, *words], text=True, capture_output=True, env=environment, check=False)

        yield run


@pytest.mark.parametrize("machine", GKE_NICS)
def test_google_accepts_a_network_for_every_nic(machine: str, google: Google, init: Init) -> None:
    done = init("--cluster", "train", "--machine-type", machine, "--nodes", "3")
    assert done.returncode == 0, done.stderr
    [pool] = google.made["nodePools"].values()
    attached = [one["subnetwork"] for one in pool["networkConfig"]["additionalNodeNetworkConfigs"]]
    assert (pool["config"]["machineType"], pool["initialNodeCount"]) == (machine, 3)
    assert len(attached) == sum(NETWORK_CARDS[machine]) - 1
    assert set(attached) == set(google.made["subnetworks"]), "a subnet without a NIC, or a NIC without one"


def test_networks_match_those_of_dranetctl(google: Google, init: Init) -> None:
    assert init("--cluster", "train").returncode == 0
    networks = {name: (one["mtu"], one.get("networkProfile")) for name, one in google.made["networks"].items()}
    assert networks == {"train-gvnic": (8244, None), "train-rdma": (8896, "us-central1-a-vpc-roce")}
    assert len([one for one in google.made["subnetworks"].values() if one["network"] == "train-rdma"]) == 8
    assert {one["network"] for one in google.made["firewalls"].values()} == {"train-gvnic"}


def test_reports_a_zone_without_rdma_networks(google: Google, init: Init) -> None:
    done = init("--zone", "us-central1-f")
    assert done.returncode == 1
    assert "networkProfiles/us-central1-f-vpc-roce was not found" in done.stderr
    assert "earlier commands are done, later ones were not run" in done.stderr
    assert not google.made["nodePools"]


def test_clusters_use_different_names(google: Google, init: Init) -> None:
    for cluster in ("one", "two"):
        done = init("--cluster", cluster)
        assert done.returncode == 0, done.stderr
    assert sorted(google.made["clusters"]) == ["one", "two"]
    done = init("--cluster", "one")
    assert (done.returncode, "'one' already exists" in done.stderr) == (1, True)
