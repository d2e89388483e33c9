"""Each provider against a server that answers as the real metadata service does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import msgspec
import pytest

from dranet.core.device import Device
from dranet.core.netconfig_parse import parse
from dranet.core.slices import device_problems
from dranet.node.inventory.cloud import (
    CloudContext,
    CloudError,
    CloudProvider,
    Firmware,
    Identity,
    alibaba,
    aws,
    azure,
    gce,
    oke,
)
from dranet.node.inventory.cloud.neuron import device_groups
from tests.node.inventory.conftest import Answer, Server

NIC = Identity(device="pci-0000-8a-00-0", interface="eth1", mac="42:01:0a:80:00:05", pci="0000:8a:00.0")


def js(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def context(url: str, **fields: Any) -> CloudContext:
    return CloudContext(metadata_url=url, timeout=1.0, **fields)


def found(provider: CloudProvider | None) -> Any:
    assert provider is not None
    return provider


async def detected(server: Server, cloud: ModuleType, answers: Mapping[str, Answer], **fields: Any) -> Any:
    """The provider on a machine whose metadata service gives these answers."""
    server.answer(answers)
    return found(await cloud.detect(context(server.url, **fields)))


# GCE ------------------------------------------------------------------------------------------------------------

GOOGLE = {"Metadata-Flavor": "Google"}
GCE: dict[str, Answer] = {
    "/computeMetadata/v1/instance/machine-type": (200, "projects/812/machineTypes/a4-highgpu-8g", GOOGLE),
    "/computeMetadata/v1/instance/attributes/physical_host": "/b-1/sb-2/h/3",
    "/computeMetadata/v1/instance/network-interfaces/": js(
        [
            {"ip": "10.0.0.2", "mac": "42:01:0A:80:00:05", "network": "projects/812/networks/rdma-net"},
            {
                "mac": "42:01:0a:80:00:06",
                "network": "projects/812/networks/web",
                "ipAliases": ["10.1.0.0/24", "fd::/96"],
            },
            {"mac": "42:01:0a:80:00:07", "network": "nonsense"},
        ]
    ),
}
GCE_NODE = {
    "gce.dra.net/machineType": "a4-highgpu-8g",
    "gce.dra.net/block": "b-1",
    "gce.dra.net/subBlock": "sb-2",
    "gce.dra.net/host": "h/3",
}


async def test_gce_tells_machine_place_and_network_of_a_nic(server: Server) -> None:
    provider = await detected(server, gce, GCE)
    assert provider.attributes(NIC) == {
        **GCE_NODE,
        "gce.dra.net/networkName": "rdma-net",
        "gce.dra.net/networkProjectNumber": 812,
    }
    assert await provider.config(NIC) is None


async def test_gce_joins_alias_ranges(server: Server) -> None:
    provider = await detected(server, gce, GCE)
    aliased = Identity(device="x", mac="42:01:0a:80:00:06")
    assert provider.attributes(aliased)["gce.dra.net/ipAliases"] == "10.1.0.0/24,fd::/96"


@pytest.mark.parametrize("mac", ["42:01:0a:80:00:07", "02:00:00:00:00:99", ""])
async def test_gce_tells_only_about_the_node_where_the_network_is_unknown(server: Server, mac: str) -> None:
    provider = await detected(server, gce, GCE)
    assert provider.attributes(Identity(device="x", mac=mac)) == GCE_NODE


@pytest.mark.parametrize("host", [(404, ""), "only/two", None])
async def test_gce_without_a_physical_host_has_no_place(server: Server, host: Any) -> None:
    provider = await detected(server, gce, {**GCE, "/computeMetadata/v1/instance/attributes/physical_host": host})
    assert set(provider.attributes(Identity(device="x"))) == {"gce.dra.net/machineType"}


async def test_gce_is_not_detected_where_the_answer_does_not_carry_googles_header(server: Server) -> None:
    server.handler = lambda request: "<html>please log in</html>"
    assert await gce.detect(context(server.url)) is None


async def test_gce_sees_after_a_refresh_that_the_host_migrated(server: Server) -> None:
    provider = await detected(server, gce, GCE)
    assert not await provider.refresh(())
    server.answer({**GCE, "/computeMetadata/v1/instance/attributes/physical_host": "/b-1/sb-9/h9"})
    assert await provider.refresh(())
    assert provider.attributes(NIC)["gce.dra.net/subBlock"] == "sb-9"


async def test_gce_keeps_what_it_knows_when_a_refresh_fails(server: Server) -> None:
    provider = await detected(server, gce, GCE)
    server.handler = lambda request: (503, "later")
    with pytest.raises(CloudError, match="503"):
        await provider.refresh(())
    assert provider.attributes(NIC)["gce.dra.net/networkName"] == "rdma-net"


# AWS ------------------------------------------------------------------------------------------------------------


def aws_server(instance_type: str) -> dict[str, Any]:
    return {
        "/latest/api/token": "token-1",
        "/latest/dynamic/instance-identity/document": js({"instanceType": instance_type, "region": "us-east-1"}),
    }


EFA = Identity(device="pci-0000-b4-00-0", pci="0000:b4:00.0", driver="efa")


async def test_aws_asks_with_a_session_token(server: Server) -> None:
    await detected(server, aws, aws_server("p5.48xlarge"))
    assert [(r.method, r.headers.get("x-aws-ec2-metadata-token")) for r in server.requests] == [
        ("PUT", None),
        ("GET", "token-1"),
    ]


async def test_aws_groups_the_efa_nics_of_a_neuron_machine(server: Server) -> None:
    attributes = (await detected(server, aws, aws_server("trn2.48xlarge"))).attributes(EFA)
    first_four = "0000:b3:00.0,0000:b4:00.0,0000:c9:00.0,0000:ca:00.0"
    assert attributes["resource.aws.com/devicegroup1_id"] == "0000:b4:00.0"
    assert attributes["resource.aws.com/devicegroup4_id"] == hashlib.sha256(first_four.encode()).hexdigest()[:16]
    assert set(attributes) == {f"resource.aws.com/devicegroup{n}_id" for n in (1, 4, 8, 16)}


async def test_aws_trusts_the_firmware_for_the_exact_model(server: Server) -> None:
    firmware = Firmware(vendor="Amazon EC2", product="trn3-dev0.48xlarge")
    provider = await detected(server, aws, aws_server("trn3.48xlarge"), firmware=firmware)
    nic = Identity(device="x", pci="0000:a9:00.0", driver="efa")
    assert provider.attributes(nic) == device_groups("trn3-dev0.48xlarge")["0000:a9:00.0"]


@pytest.mark.parametrize(
    ("instance_type", "nic"),
    [
        ("p5.48xlarge", EFA),
        ("trn2.48xlarge", Identity(device="x", pci="0000:b4:00.0", driver="ena")),
        ("trn2.48xlarge", Identity(device="x", pci="0000:00:05.0", driver="efa")),
        ("inf2.48xlarge", EFA),
    ],
)
async def test_aws_reports_nothing_about_other_nics_and_machines(
    server: Server, instance_type: str, nic: Identity
) -> None:
    assert (await detected(server, aws, aws_server(instance_type))).attributes(nic) == {}


@pytest.mark.parametrize("machine", ["trn1.32xlarge", "trn1n.32xlarge", "trn2u.48xlarge", "trn3.48xlarge"])
def test_all_nics_of_a_neuron_machine_share_the_group_of_sixteen(machine: str) -> None:
    groups = device_groups(machine)
    assert len(groups) == (8 if machine.startswith("trn1.") else 16)
    assert len({g["resource.aws.com/devicegroup16_id"] for g in groups.values()}) == 1
    assert len({g["resource.aws.com/devicegroup4_id"] for g in groups.values()}) == 4


async def test_aws_is_not_detected_without_an_identity_document(server: Server) -> None:
    server.answer({"/latest/api/token": "t", "/latest/dynamic/instance-identity/document": js(["no"])})
    assert await aws.detect(context(server.url)) is None


# Azure ----------------------------------------------------------------------------------------------------------

AZURE_NIC = {
    "macAddress": "000D3A6E1122",
    "ipv4": {"ipAddress": [{"privateIpAddress": "10.1.0.7"}], "subnet": [{"address": "10.1.0.0", "prefix": "24"}]},
    "ipv6": {"ipAddress": [{"privateIpAddress": "fd00:1::7"}]},
}
AZURE = {
    "/metadata/instance": "compute/\nnetwork/",
    "/metadata/instance/compute": js({"vmSize": "Standard_ND128isr_GB300_v6", "placementGroupId": "pg", "name": "n"}),
    "/metadata/instance/network": js({"interface": [{"macAddress": "000D3A000000"}, AZURE_NIC]}),
}
ON_AZURE = Identity(device="pci-0101-00-00-0", interface="eth1", mac="00:0d:3a:6e:11:22")


async def test_azure_tells_vm_size_and_placement_but_no_empty_fields(server: Server) -> None:
    provider = await detected(server, azure, AZURE)
    assert provider.attributes(NIC) == {
        "azure.dra.net/vmSize": "Standard_ND128isr_GB300_v6",
        "azure.dra.net/placementGroupId": "pg",
    }


async def test_azure_gives_a_secondary_nic_a_table_of_its_own(server: Server) -> None:
    config = await (await detected(server, azure, AZURE)).config(ON_AZURE)
    assert config["routes"] == [{"destination": "0.0.0.0/0", "gateway": "10.1.0.1", "table": 101}]
    assert [(rule["source"], rule["table"]) for rule in config["rules"]] == [("10.1.0.0/24", 101)]


async def test_azure_configures_ipv6_where_the_node_has_a_router_for_the_nic(server: Server) -> None:
    server.answer(AZURE)
    nic = Identity(device="pci-0101-00-00-0", interface="eth1", mac="00-0D-3A-6E-11-22", gateway6="fe80::1")
    config = await found(await azure.detect(context(server.url))).config(nic)
    assert {"destination": "::/0", "gateway": "fe80::1", "table": 101} in config["routes"]
    assert "fd00:1::7/128" in [rule["source"] for rule in config["rules"]]


async def test_azures_configuration_is_one_that_a_claim_could_carry(server: Server) -> None:
    config = await (await detected(server, azure, AZURE)).config(ON_AZURE)
    assert parse(config).routes


@pytest.mark.parametrize(
    "subnet", [{"address": "10.1.0.9", "prefix": "24"}, {"address": "10.1.0.0", "prefix": "32"}, {"address": "x"}, {}]
)
async def test_azure_has_no_configuration_where_the_subnet_has_no_router(server: Server, subnet: Any) -> None:
    nic = {"macAddress": "000D3A6E1122", "ipv4": {"subnet": [subnet]}}
    assert (
        await (await detected(server, azure, {**AZURE, "/metadata/instance/network": js({"interface": [nic]})})).config(
            ON_AZURE
        )
        is None
    )


async def test_azure_has_no_opinion_about_nics_it_does_not_know(server: Server) -> None:
    assert await (await detected(server, azure, AZURE)).config(NIC) is None


@pytest.mark.parametrize("network", [(500, ""), None])
async def test_azure_lives_without_network_metadata(server: Server, network: Any) -> None:
    provider = await detected(server, azure, {**AZURE, "/metadata/instance/network": network})
    assert provider.attributes(NIC) and await provider.config(ON_AZURE) is None


async def test_azure_is_not_taken_for_a_server_that_says_yes_to_everything(server: Server) -> None:
    server.handler = lambda request: js({"hello": "world"})
    with pytest.raises(CloudError, match="vmSize"):
        await azure.detect(context(server.url))


# OKE ------------------------------------------------------------------------------------------------------------

OCID = "ocid1.hpcisland.oc1.iad." + "a" * 70
OKE = {
    "/opc/v2/instance/": js({"shape": "BM.GPU.GB200-v3.4"}),
    "/opc/v2/host/": js(
        {
            "networkBlockId": "nb-plain",
            "rackId": "rack-7",
            "rdmaTopologyData": {
                "customerHPCIslandId": OCID,
                "customerNetworkBlock": "ocid1.networkblock.oc1.iad.nb",
                "customerLocalBlock": "ocid1.localblock.oc1.iad.lb",
                "customerGpuMemoryFabric": "",
            },
        }
    ),
}


async def test_oke_tells_the_place_in_the_rdma_network_by_the_end_of_its_names(server: Server) -> None:
    attributes = (await detected(server, oke, OKE)).attributes(NIC)
    assert attributes == {
        "oke.dra.net/hpcIslandId": "a" * 60,
        "oke.dra.net/networkBlockId": "nb",
        "oke.dra.net/localBlockId": "lb",
        "oke.dra.net/rackId": "rack-7",
        "oke.dra.net/shape": "BM.GPU.GB200-v3.4",
    }
    assert device_problems(Device(name="x", attributes=attributes)) == []


async def test_oke_without_topology_tells_block_and_rack(server: Server) -> None:
    assert (
        await detected(server, oke, {**OKE, "/opc/v2/host/": js({"networkBlockId": "nb-plain", "rackId": "rack-7"})})
    ).attributes(NIC) == {
        "oke.dra.net/networkBlockId": "nb-plain",
        "oke.dra.net/rackId": "rack-7",
        "oke.dra.net/shape": "BM.GPU.GB200-v3.4",
    }


async def test_oke_says_what_to_do_when_the_host_is_not_described(server: Server) -> None:
    server.answer({"/opc/v2/instance/": "{}"})
    with pytest.raises(CloudError, match="enabled for the tenancy"):
        await oke.detect(context(server.url))


@pytest.mark.parametrize("bad", ["plain", "no.dots.but.no.id"])
def test_what_is_no_ocid_is_refused(bad: str) -> None:
    with pytest.raises(CloudError, match="not an OCID"):
        oke.ocid_suffix(bad)


# Alibaba --------------------------------------------------------------------------------------------------------

ALIBABA = {
    "/latest/api/token": "tok",
    "/latest/meta-data/instance-id": "i-1",
    "/latest/meta-data/instance/instance-type": "ecs.gn8is-2x.8xlarge",
}


async def test_alibaba_marks_erdma_nics(server: Server) -> None:
    devices = {"erdma_0": "0000:00:0b.0", "mlx5_0": "0000:00:0c.0"}
    provider = await detected(server, alibaba, ALIBABA, rdma_devices=devices)
    assert provider.attributes(Identity(device="x", pci="0000:00:0b.0")) == {
        "alibaba.dra.net/instanceType": "ecs.gn8is-2x.8xlarge",
        "alibaba.dra.net/erdma": True,
    }
    assert "alibaba.dra.net/erdma" not in provider.attributes(NIC)


@pytest.mark.parametrize("missing", [(404, ""), None])
async def test_alibaba_finds_its_instance_type_later_if_it_was_missing(server: Server, missing: Any) -> None:
    provider = await detected(server, alibaba, {**ALIBABA, "/latest/meta-data/instance/instance-type": missing})
    assert provider.attributes(NIC) == {}
    server.answer(ALIBABA)
    assert await provider.refresh(())
    assert provider.attributes(NIC) == {"alibaba.dra.net/instanceType": "ecs.gn8is-2x.8xlarge"}


async def test_alibaba_is_not_detected_where_no_token_is_handed_out(server: Server) -> None:
    server.handler = lambda request: (405, "") if request.method == "PUT" else "i-1"
    with pytest.raises(CloudError, match="405"):
        await alibaba.detect(context(server.url))


@pytest.mark.parametrize(
    ("cloud", "answers", "header", "path"),
    [
        (gce, GCE, ("metadata-flavor", "Google"), ""),
        (azure, AZURE, ("metadata", "true"), "api-version=2025-11-11"),
        (oke, OKE, ("authorization", "Bearer Oracle"), ""),
        (alibaba, ALIBABA, ("x-aliyun-ecs-metadata-token", "tok"), ""),
    ],
)
async def test_every_request_has_the_header_that_the_service_requires(
    server: Server, cloud: ModuleType, answers: Mapping[str, Answer], header: tuple[str, str], path: str
) -> None:
    await detected(server, cloud, answers)
    read = [request for request in server.requests if request.method == "GET"]
    assert read and all(request.headers.get(header[0]) == header[1] and path in request.path for request in read)
