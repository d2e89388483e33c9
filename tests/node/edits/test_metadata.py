"""Device metadata files: the path, the stream of versions, and the content."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from dranet.core import podinfo
from dranet.linux.gids import Gid
from dranet.node.edits.metadata import VERSIONS, container_path, stream
from dranet.node.edits.pod_device import ROCE, ClaimIdentity, PodDevice

CLAIM = ClaimIdentity("train", "job-0-nics-x7k2p", "5d0c", pod_claim_name="nics")


def device(request: str = "rdma", **changes: object) -> PodDevice:
    facts: dict[str, object] = {
        "pool": "node-a",
        "device": "pci-0000-c1-00-0",
        "attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:c1:00.0"}, "dra.net/numaNode": {"int": 1}},
        "interface": "dranet0",
        "addresses": ["10.0.4.7/24"],
        "mac": "02:00:00:00:04:07",
        "rdma_device": "mlx5_0",
        "fabric": ROCE,
        "gid": Gid(5, ipaddress.IPv6Address("::ffff:10.0.4.7"), "RoCE v2", "dranet0"),
    }
    return PodDevice(request=request, **{**facts, **changes})  # type: ignore[arg-type]


def objects(raw: bytes) -> list[dict[str, Any]]:
    decoder, text, found = json.JSONDecoder(), raw.decode(), []
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


def test_path_has_the_pod_claim_name_or_the_claim_name() -> None:
    base = "/var/run/kubernetes.io/dra-device-attributes"
    assert container_path(CLAIM, "rdma") == f"{base}/resourceclaimtemplates/nics/rdma/dra.net-metadata.json"
    named = ClaimIdentity("train", "eight", "5d0c")
    assert container_path(named, "nic/fast") == f"{base}/resourceclaims/eight/nic/dra.net-metadata.json"


def test_newest_version_comes_first_and_all_have_the_same_content() -> None:
    found = objects(stream(CLAIM, [device()], generation=2))
    assert tuple(one.pop("apiVersion") for one in found) == VERSIONS
    assert found[0] == found[1]


def test_a_device_has_interface_addresses_and_gid() -> None:
    (beta, _) = objects(stream(CLAIM, [device()], generation=2))
    assert beta["metadata"] == {"name": CLAIM.name, "namespace": "train", "uid": "5d0c", "generation": 2}
    assert beta["podClaimName"] == "nics"
    (request,) = beta["requests"]
    (written,) = request["devices"]
    assert (request["name"], written["driver"], written["name"]) == ("rdma", "dra.net", "pci-0000-c1-00-0")
    assert written["networkData"] == {
        "interfaceName": "dranet0",
        "ips": ["10.0.4.7/24"],
        "hardwareAddress": "02:00:00:00:04:07",
    }
    assert written["attributes"]["dra.net/gidIndex"] == {"int": 5}
    assert written["attributes"]["dra.net/gid"] == {"string": "0000:0000:0000:0000:0000:ffff:0a00:0407"}
    assert written["attributes"]["dra.net/rdmaDevice"] == {"string": "mlx5_0"}
    assert written["attributes"]["resource.kubernetes.io/pciBusID"] == {"string": "0000:c1:00.0"}


def test_a_claim_without_template_has_no_pod_claim_name() -> None:
    assert "podClaimName" not in objects(stream(ClaimIdentity("n", "c", "u"), [device()]))[0]


def test_an_rdma_only_device_has_no_network_data() -> None:
    (beta, _) = objects(stream(CLAIM, [device(interface="", addresses=[], mac="")]))
    assert "networkData" not in beta["requests"][0]["devices"][0]


def test_sub_requests_are_separate_entries_of_one_file() -> None:
    (beta, _) = objects(stream(CLAIM, [device("nic/slow", device="b"), device("nic/fast", device="a")]))
    assert [(r["name"], [d["name"] for d in r["devices"]]) for r in beta["requests"]] == [
        ("nic/fast", ["a"]),
        ("nic/slow", ["b"]),
    ]


def test_added_attributes_never_replace_published_ones() -> None:
    full = {f"dra.net/a{n}": {"int": n} for n in range(31)}
    (beta, _) = objects(stream(CLAIM, [device(attributes=full)]))
    written = beta["requests"][0]["devices"][0]["attributes"]
    assert len(written) == 32
    assert full.items() <= written.items()


def test_lists_at_most_sixteen_addresses_without_duplicates() -> None:
    many = [f"10.0.0.{n}/24" for n in range(1, 21)] + ["10.0.0.1/24"]
    (beta, _) = objects(stream(CLAIM, [device(addresses=many)]))
    assert beta["requests"][0]["devices"][0]["networkData"]["ips"] == many[:16]


def test_podinfo_reads_the_metadata_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / container_path(CLAIM, "rdma").removeprefix("/var/run/kubernetes.io/dra-device-attributes/")
    path.parent.mkdir(parents=True)
    path.write_bytes(stream(CLAIM, [device()]))
    assert podinfo.main(["--base", str(tmp_path), "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["devices"]
    assert (found["claim"], found["request"], found["interface"]) == ("nics", "rdma", "dranet0")
    assert (found["rdmaDevice"], found["gidIndex"], found["pci"]) == ("mlx5_0", 5, "0000:c1:00.0")
