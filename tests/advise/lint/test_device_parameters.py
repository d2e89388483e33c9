"""`dranet lint` resolves parameters by device for every device that a claim can get."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dranet.cli.main import load_group

MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: rails}}
spec:
  selectors: [{{cel: {{expression: 'device.driver == "dra.net" && device.attributes["dra.net"].rdma == true'}}}}]
  config:
  - opaque:
      driver: dra.net
      parameters:
        perDevice: [{entry}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: nics}}
spec:
  spec:
    devices:
      requests: [{{name: nic, exactly: {{deviceClassName: rails, count: {count}}}}}]
"""


def lint(folder: Path, entry: str, count: int = 4) -> str:
    file = folder / "claim.yaml"
    file.write_text(MANIFEST.format(entry=entry, count=count))
    return CliRunner().invoke(load_group(), ["lint", str(file), "--shape", "a4-highgpu-8g"]).output


def test_names_and_tables_by_rail_are_fine(tmp_path: Path) -> None:
    entry = '{interface: {name: "net{rail}"}, railRouting: {gateway: "10.{rail}.0.1"}}'
    assert "device-parameters" not in lint(tmp_path, entry)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{interface: {name: "nic-numa{numaNode}"}}', "interface name nic-numa0 is used for several NICs of one node"),
        ('{interface: {name: "a-long-name-for-{ifName}"}}', "is longer than 15 characters"),
        ('{interface: {name: "n{example.com/plane}"}}', "the word {example.com/plane} has no value"),
        ("{match: 'device.attributes[\"dra.net\"].nosuch == 1', interface: {mtu: 9000}}", "no such key: nosuch"),
        ("{match: 'device.attributes[\"dra.net\"', interface: {mtu: 9000}}", "does not compile"),
    ],
)
def test_what_a_device_makes_of_it_is_reported(tmp_path: Path, entry: str, message: str) -> None:
    found = lint(tmp_path, entry)
    assert message in " ".join(found.split()) and "device-parameters" in found


def test_one_nic_may_have_a_name_that_others_would_share(tmp_path: Path) -> None:
    assert "device-parameters" not in lint(tmp_path, '{interface: {name: "nic-numa{numaNode}"}}', count=1)
