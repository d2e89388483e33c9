"""Device metadata files: the path, the stream of versions, and what stands in it."""

from __future__ import annotations

import ipaddress
import json

from dranet import podinfo
from dranet.model.gids import Gid
from dranet.podfacts.card import ROCE, ClaimIdentity, PodCard
from dranet.podfacts.metadata import VERSIONS, container_path, stream

CLAIM = ClaimIdentity("train", "job-0-nics-x7k2p", "5d0c", pod_claim_name="nics")


def card(request: str = "rdma", **changes: object) -> PodCard:
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
    return PodCard(request=request, **{**facts, **changes})  # type: ignore[arg-type]


def objects(raw: bytes) -> list[dict]:
    decoder, text, found = json.JSONDecoder(), raw.decode(), []
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


def test_a_generated_claim_is_found_by_the_pod_s_name_for_it_and_a_named_one_by_its_own():
    base = "/var/run/kubernetes.io/dra-device-attributes"
    assert container_path(CLAIM, "rdma") == f"{base}/resourceclaimtemplates/nics/rdma/dra.net-metadata.json"
    named = ClaimIdentity("train", "eight", "5d0c")
    assert container_path(named, "nic/fast") == f"{base}/resourceclaims/eight/nic/dra.net-metadata.json"


def test_the_newest_version_comes_first_and_all_say_the_same():
    found = objects(stream(CLAIM, [card()], generation=2))
    assert tuple(one.pop("apiVersion") for one in found) == VERSIONS
    assert found[0] == found[1]


def test_a_card_is_told_with_its_interface_addresses_and_gid():
    (beta, _) = objects(stream(CLAIM, [card()], generation=2))
    assert beta["metadata"] == {"name": CLAIM.name, "namespace": "train", "uid": "5d0c", "generation": 2}
    assert beta["podClaimName"] == "nics"
    (request,) = beta["requests"]
    (device,) = request["devices"]
    assert (request["name"], device["driver"], device["name"]) == ("rdma", "dra.net", "pci-0000-c1-00-0")
    assert device["networkData"] == {
        "interfaceName": "dranet0",
        "ips": ["10.0.4.7/24"],
        "hardwareAddress": "02:00:00:00:04:07",
    }
    assert device["attributes"]["dra.net/gidIndex"] == {"int": 5}
    assert device["attributes"]["dra.net/gid"] == {"string": "0000:0000:0000:0000:0000:ffff:0a00:0407"}
    assert device["attributes"]["dra.net/rdmaDevice"] == {"string": "mlx5_0"}
    assert device["attributes"]["resource.kubernetes.io/pciBusID"] == {"string": "0000:c1:00.0"}


def test_a_claim_the_pod_names_itself_has_no_pod_claim_name():
    assert "podClaimName" not in objects(stream(ClaimIdentity("n", "c", "u"), [card()]))[0]


def test_an_rdma_only_device_has_no_network_data():
    (beta, _) = objects(stream(CLAIM, [card(interface="", addresses=[], mac="")]))
    assert "networkData" not in beta["requests"][0]["devices"][0]


def test_sub_requests_stay_apart_inside_one_file():
    (beta, _) = objects(stream(CLAIM, [card("nic/slow", device="b"), card("nic/fast", device="a")]))
    assert [(r["name"], [d["name"] for d in r["devices"]]) for r in beta["requests"]] == [
        ("nic/fast", ["a"]),
        ("nic/slow", ["b"]),
    ]


def test_what_the_slice_says_is_never_pushed_out_by_what_we_add():
    full = {f"dra.net/a{n}": {"int": n} for n in range(31)}
    (beta, _) = objects(stream(CLAIM, [card(attributes=full)]))
    told = beta["requests"][0]["devices"][0]["attributes"]
    assert len(told) == 32
    assert full.items() <= told.items()


def test_no_more_than_sixteen_addresses_are_told_and_none_twice():
    many = [f"10.0.0.{n}/24" for n in range(1, 21)] + ["10.0.0.1/24"]
    (beta, _) = objects(stream(CLAIM, [card(addresses=many)]))
    assert beta["requests"][0]["devices"][0]["networkData"]["ips"] == many[:16]


def test_pod_info_reads_what_we_write(tmp_path, capsys):
    path = tmp_path / container_path(CLAIM, "rdma").removeprefix("/var/run/kubernetes.io/dra-device-attributes/")
    path.parent.mkdir(parents=True)
    path.write_bytes(stream(CLAIM, [card()]))
    assert podinfo.main(["--base", str(tmp_path), "-o", "json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["claim"], device["request"], device["interface"]) == ("nics", "rdma", "dranet0")
    assert (device["rdmaDevice"], device["gidIndex"], device["pci"]) == ("mlx5_0", 5, "0000:c1:00.0")
