"""The file people copy into images: prints what the mounted metadata says, by Python and by a shell."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dranet import podinfo

BETA, ALPHA = podinfo.KNOWN


def document(version: str = BETA, **network: object) -> dict:
    device = {
        "driver": "dra.net",
        "pool": "n",
        "name": "card",
        "networkData": {"interfaceName": "net1", "ips": ["10.0.0.1/24"], **network},
        "attributes": {"dra.net/rdmaDevice": {"string": "mlx5_0"}, "dra.net/gidIndex": {"int": 3}},
    }
    return {"kind": "DeviceMetadata", "apiVersion": version, "requests": [{"name": "nic", "devices": [device]}]}


@pytest.fixture
def mounted(tmp_path: Path):
    def mount(*documents: object, claim: str = "nics", request: str = "nic", driver: str = "dra.net") -> Path:
        folder = tmp_path / "resourceclaims" / claim / request
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{driver}-metadata.json").write_text("\n".join(map(json.dumps, documents)))
        return tmp_path

    return mount


def test_it_runs_as_a_file_of_its_own_without_the_package(mounted, tmp_path):
    copy = shutil.copy(podinfo.__file__, tmp_path / "anything.py")
    base = mounted(document())
    command = [sys.executable, "-I", "-S", copy, "--base", str(base), "-o", "export"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "export DRANET_INTERFACES=net1" in lines
    assert "export DRANET_RDMA_PORTS=mlx5_0:1" in lines
    assert "export DRANET_GID_INDEX=3" in lines


def test_a_version_of_the_future_is_passed_over_for_one_that_is_known(mounted):
    future = {"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v9", "requests": "?"}
    assert [d["device"] for d in podinfo.devices(str(mounted(future, document(ALPHA))))] == ["card"]


def test_a_hostile_name_stays_a_value_in_the_shell(mounted):
    base = mounted(document(interfaceName="net1; echo owned", ips=["$(id)/24"]))
    script = "\n".join(podinfo.exports(podinfo.devices(str(base)))) + "\necho $DRANET_INTERFACES/$DRANET_ADDRESSES"
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "net1; echo owned/$(id)\n"


def test_one_index_is_given_only_where_all_cards_agree(mounted):
    other = document(interfaceName="net2")
    other["requests"][0]["devices"][0]["attributes"]["dra.net/gidIndex"] = {"int": 5}
    mounted(document())
    base = mounted(other, request="second")
    assert not any("GID_INDEX" in line for line in podinfo.exports(podinfo.devices(str(base))))


def test_a_torn_file_is_said_and_the_others_are_shown(mounted, capsys):
    base = mounted(document())
    (base / "resourceclaims/nics/nic/other-metadata.json").write_text('{"kind": ')
    assert len(podinfo.devices(str(base))) == 1
    assert "other-metadata.json" in capsys.readouterr().err


def test_nothing_mounted_is_said_with_what_to_do(tmp_path, capsys):
    assert podinfo.main(["--base", str(tmp_path)]) == 1
    assert "does the container name its claim?" in capsys.readouterr().err


def test_the_table_has_a_line_a_device(mounted, capsys):
    assert podinfo.main(["--base", str(mounted(document()))]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["CLAIM", "REQUEST", "DEVICE"]
    assert line.split() == ["nics", "nic", "card", "net1", "10.0.0.1/24", "-", "mlx5_0", "3", "-", "-"]
