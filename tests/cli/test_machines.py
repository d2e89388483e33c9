"""Machines on the command line: import, NCCL's file, rails and fleets; what they print and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dranet.advise.suggest import stateful_set
from dranet.machines.importers.detect import shape_of_text
from dranet.machines.shape import load_shape
from dranet.testing.sysfs_tree import write_sysfs
from tests.inputs import run

MACHINES = Path(__file__).parent.parent / "data" / "machines"
P4D = MACHINES / "aws-p4d.24xlarge"
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_an_imported_matrix_is_a_shape_for_every_command(tmp_path: Path) -> None:
    made = tmp_path / "machine.toml"
    assert run("shape", "import", MACHINES / "dgx-h200/topo-m.txt", "-o", made).exit_code == 0
    cells = json.loads(run("topo", "--shape", made, "-o", "json").stdout)["matrix"]
    assert cells["GPU1"]["NIC3"] == "PXB"
    assert "kind: ResourceClaimTemplate" in run("suggest", "--shape", made).stdout


def test_several_files_are_slices_of_one_node() -> None:
    done = run("shape", "import", P4D / "resourceslice-dranet.yaml", P4D / "resourceslice-gpu.yaml", "--name", "mine")
    assert 'name = "mine"' in done.stdout and done.stdout.count("[[gpus]]") == 8 and done.stdout.count("[[nics]]") == 7


def test_standard_input_is_read() -> None:
    assert run("shape", "import", "-", stdin=(P4D / "nccl-topo.xml").read_bytes()).stdout.count("[[gpus]]") == 8


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([MACHINES / "aks-nc-a100-v4/nccl-graph.xml"], "channel graph"),
        ([P4D / "nccl-topo.xml", P4D / "hwloc.xml"], "only ResourceSlices can be in several files"),
        ([MACHINES / "aws-p5.48xlarge/resourceslice-gpu.yaml"], "select one with --node: gpu-node-1, gpu-node-2"),
        ([MACHINES / "nowhere.xml"], "cannot read the file: No such file or directory"),
        ([MACHINES], "cannot read the file: Is a directory"),
        ([MACHINES / "dgx-h200/SOURCE"], "unknown format: expected a topology matrix"),
    ],
)
def test_import_failure_is_a_one_line_error(args: list[Path], message: str) -> None:
    done = run("shape", "import", *args)
    assert done.exit_code == 1 and message in done.stderr and done.stdout == ""


def test_nccl_file_of_a_claim_has_only_its_devices(tmp_path: Path) -> None:
    template = run("suggest", "--shape", "a4-highgpu-8g").stdout
    (tmp_path / "claim.yaml").write_text(template)
    done = run(
        "topo", "-o", "nccl-xml", "--shape", "a4-highgpu-8g", "-f", tmp_path / "claim.yaml", "--claim", "1gpu-1nic"
    )
    made = shape_of_text(done.stdout, "x")
    assert made is not None and [str(part.pci) for part in made.parts] == ["0000:8f:00.0", "0000:91:00.0"]


def test_nccl_file_of_recorded_slices_has_their_devices() -> None:
    done = run(
        "topo",
        "-o",
        "nccl-xml",
        "--slices",
        P4D / "resourceslice-dranet.yaml",
        "--slices",
        P4D / "resourceslice-gpu.yaml",
    )
    made = shape_of_text(done.stdout, "x")
    known = {str(part.pci) for part in load_shape("p4d.24xlarge").parts}
    assert made is not None and {str(part.pci) for part in made.parts} == known


def test_plan_prints_rails_as_text_and_json(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    template = run("suggest", "--gpus", "0", "--nics", "1", "--shape", "bm.gpu.h100.8").stdout
    job.write_text(template + "---\n" + stateful_set("1nic", 3))
    args = ("-f", job, "--shape", "bm.gpu.h100.8=2")
    assert "different rails; not proven isolated" in run("plan", *args).stdout
    (entry,) = json.loads(run("plan", *args, "-o", "json").stdout)["rails"]
    assert (entry["reachable"], entry["common"]) == (None, [])


def test_suggest_writes_claims_for_the_same_rails_and_for_fleets() -> None:
    rails = run("suggest", "--same-rails", "--pods", "2", "--shape", "bm.gpu.h100.8=2").stdout
    assert 'device.attributes["dra.net"].rail == "15"' in rails
    fleet = run("suggest", "--shape", "nd-gb300-v6", "--shape", "a4-highgpu-8g").stdout
    assert "# one template for each kind of machine." in fleet and "kind: ComputeDomain" in fleet
    assert run("suggest", "--same-rails", "--shape", "p5.48xlarge=2").exit_code == 1


def test_nccl_file_of_a_pod_has_devices_of_all_claims() -> None:
    folder = EXAMPLES / "3-gke-mpi"
    files = ("-f", folder / "claims.yaml", "-f", folder / "mpijob.yaml", "--shape", "a3-ultragpu-8g")
    worker = "nccl-test-dranet-1gpu-1nic-worker-0"
    made = shape_of_text(run("topo", "-o", "nccl-xml", *files, "--pod", worker).stdout, "x")
    assert made is not None and (len(made.gpus), len(made.nics)) == (1, 1)
    done = run("topo", "-o", "nccl-xml", *files, "--pod", "none-such")
    assert done.exit_code == 1 and "no pod none-such in the input" in done.stderr


def test_nccl_file_of_this_machine_matches_sysfs(tmp_path: Path) -> None:
    machine = load_shape("a4-highgpu-8g")
    write_sysfs(machine, tmp_path)
    made = shape_of_text(run("topo", "-o", "nccl-xml", "--sysfs", tmp_path).stdout, "x")
    assert made is not None and {str(part.pci) for part in made.parts} == {str(part.pci) for part in machine.parts}
    assert {nic.rdma for nic in made.nics} == {nic.rdma or nic.interface for nic in machine.nics}
