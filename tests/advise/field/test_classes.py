"""Classes that come with a driver or a cloud, and ``--assume-class``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dranet.advise.manifests.device_classes import known_class_facts, vendors
from dranet.advise.plan.selectors import SelectorTester
from tests.inputs import claim, run

PAIR = claim("gpu: gpu.nvidia.com\nnic: CLASS", "gpu, nic: resource.kubernetes.io/pcieRoot")


def planned(tmp_path: Path, device_class: str, *more: str) -> dict[str, list[dict[str, str]]]:
    file = tmp_path / "pair.yaml"
    file.write_text(PAIR.replace("CLASS", device_class))
    found: dict[str, list[dict[str, str]]] = json.loads(
        run("plan", "-f", file, "--shape", "a4-highgpu-8g", "-o", "json", *more).stdout
    )
    return found


@pytest.mark.parametrize("name", known_class_facts())
def test_selectors_of_known_classes_compile(name: str) -> None:
    assert [SelectorTester((1, 37)).problems(text) for text in known_class_facts()[name].selectors] == [
        ("", ()) for _ in known_class_facts()[name].selectors
    ]


@pytest.mark.parametrize("vendor", vendors(), ids=lambda vendor: str(vendor.vendor))
def test_vendors_name_their_sources(vendor: object) -> None:
    assert getattr(vendor, "sources", [])


def test_meant_classes_are_known() -> None:
    meant = {name for vendor in vendors() for name in vendor.misnamed.values()}
    assert meant <= known_class_facts().keys()


def test_a_class_of_a_cloud_is_assumed_with_its_origin(tmp_path: Path) -> None:
    found = planned(tmp_path, "mrdma.google.com")
    assert len(found["pods"]) == 1 and not found["unknown"]
    assumed = [one["why"] for one in found["assumed"] if "mrdma" in one["why"]]
    assert len(assumed) == 1 and "installed by GKE" in assumed[0] and "; assumed: device.driver" in assumed[0]


@pytest.mark.parametrize("meaning", ["dranet-rdma", "dra.net", 'device.driver == "dra.net"'])
def test_an_assumed_class_is_a_class_a_driver_or_an_expression(tmp_path: Path, meaning: str) -> None:
    assert planned(tmp_path, "our-nics")["unknown"]
    found = planned(tmp_path, "our-nics", "--assume-class", f"our-nics={meaning}")
    assert not found["unknown"] and len(found["pods"]) == 1


def test_a_class_without_a_meaning_is_an_error() -> None:
    done = run("lint", "-f", "-", "--assume-class", "nics", stdin=PAIR)
    assert done.exit_code != 0 and "write NAME=CLASS, NAME=DRIVER or NAME=EXPRESSION" in done.stderr


def test_fail_on_unschedulable_fails_for_undecided_pods(tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(PAIR.replace("CLASS", "our-nics"))
    done = run("plan", "-f", file, "--shape", "a4-highgpu-8g", "--fail-on", "unschedulable")
    assert (
        done.exit_code == 1
        and "1 not decided: t" in done.stderr
        and "0 of 1 pod fits; 1 unknown: t (request nic: no DeviceClass" in done.stdout
    )


def test_a_misspelt_attribute_gives_one_finding() -> None:
    wrong = claim("gpu: gpu.nvidia.com\nnic: dranet", "gpu, nic: resource.kubernetes.io/pcieRoot").replace(
        "deviceClassName: dranet",
        "deviceClassName: dranet, selectors: [{cel: {expression: 'device.attributes[\"dra.net\"].rmda == true'}}]",
    )
    done = run("lint", "-f", "-", "--shape", "a4-highgpu-8g", "-o", "json", stdin=wrong)
    assert [one["rule"] for one in json.loads(done.stdout)["findings"]] == ["unknown-attribute"]


def test_a_made_up_class_names_the_one_that_is_meant() -> None:
    done = run("lint", "-f", "-", stdin=PAIR.replace("CLASS", "efa.aws.com"))
    assert "no driver installs 'efa.aws.com'; did you mean 'efa.networking.k8s.aws'?" in done.stdout
