"""The commands plan, explain, lint, topo, suggest and shape: what they print, and how they refuse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dranet.cli.inputs import complete_shape
from dranet.cli.progress import FIRST, single_run, stage
from dranet.machines.shape import load_shape, parse_shape
from dranet.testing.sysfs_tree import write_sysfs
from tests.inputs import claim, run

DATA = Path(__file__).parent.parent / "data"
DOCUMENTS = DATA / "documents"
UNALIGNED = str(DOCUMENTS / "4-1nic-unaligned.yaml")
RECORDED = [arg for path in sorted(DATA.glob("gb300-*.yaml")) for arg in ("--slices", str(path))]


def test_plan_prints_json_on_stdout_and_lint_on_stderr() -> None:
    done = run("plan", "-f", UNALIGNED, "--shape", "nd-gb300-v6", "-o", "json")
    made = json.loads(done.stdout)
    assert made["pods"][0]["alignment"]["worst"] == "SYS"
    assert "no-alignment-constraint" in done.stderr


def test_plan_prints_a_table() -> None:
    done = run("plan", "-f", UNALIGNED, "--shape", "nd-gb300-v6")
    assert done.stdout.startswith("1 of 1 pod fits; worst pair SYS; ")


def test_plan_reads_standard_input() -> None:
    done = run("plan", "-f", "-", "--shape", "nd-gb300-v6", "-o", "json", stdin=Path(UNALIGNED).read_text())
    assert json.loads(done.stdout)["pods"][0]["pod"] == "1nic-unaligned"


def test_plan_reads_recorded_slices() -> None:
    done = run("plan", "-f", UNALIGNED, *RECORDED, "-o", "json")
    assert json.loads(done.stdout)["pods"][0]["node"] == "aks-gpu-45139532-vmss000081"


def test_explain_prints_both_forms() -> None:
    args = ["-f", UNALIGNED, "--shape", "nd-gb300-v6"]
    assert "better and free: gpu-0, pci-0101-00-00-0" in run("explain", *args).stdout
    assert json.loads(run("explain", *args, "-o", "json").stdout)["pods"][0]["verdict"] == "allocated"


def test_lint_exits_1_on_errors_only() -> None:
    assert run("lint", str(DOCUMENTS / "2-template-nic.yaml")).exit_code == 1
    assert run("lint", "-f", UNALIGNED).exit_code == 0


@pytest.mark.parametrize(
    ("form", "begin"), [("json", "{"), ("github", "::warning file="), ("table", "1 error, 1 warning")]
)
def test_lint_prints_all_forms(form: str, begin: str) -> None:
    done = run("lint", "-f", str(DOCUMENTS / "3-template.yaml"), "-o", form)
    assert done.stdout.startswith(begin)


def test_topo_prints_the_matrix_as_json() -> None:
    made = json.loads(run("topo", "--shape", "a4-highgpu-8g", "-o", "json").stdout)
    assert made["matrix"]["GPU0"]["NIC0"] == "PIX" and made["devices"][8] == "NIC0"


def test_topo_draws_a_picture_with_a_claims_devices(tmp_path: Path) -> None:
    claim = tmp_path / "claim.yaml"
    claim.write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n"
        "status: {allocation: {devices: {results: ["
        "{driver: gpu.nvidia.com, pool: aks-gpu-45139532-vmss000081, device: gpu-0},"
        "{driver: dra.net, pool: aks-gpu-45139532-vmss000081, device: pci-0103-00-00-0}]}}}\n"
    )
    done = run("topo", *RECORDED, "--slices", str(claim), "--claim", "c", "-o", "svg")
    assert ElementTree.fromstring(done.stdout).tag.endswith("svg")
    assert done.stdout.count(" picked") == 2 and "<title>SYS</title>" in done.stdout


def test_topo_lists_shares_of_nics(tmp_path: Path) -> None:
    device = {"request": "nic", "driver": "dra.net", "pool": "a4-highgpu-8g-0", "device": "pci-0000-91-00-0"}
    result: dict[str, object] = {**device, "shareID": "1", "consumedCapacity": {"dra.net/bandwidth": "9765625Ki"}}
    status = {"allocation": {"devices": {"results": [result]}}}
    held = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "d"}}
    file = tmp_path / "claim.json"
    file.write_text(json.dumps({**held, "spec": {"devices": {"requests": []}}, "status": status}))
    shown = run("topo", "--shape", "a4-highgpu-8g", "-f", str(file)).stdout
    assert "Shares of NIC0: d/c 10G bandwidth\n" in shown


def test_topo_reads_this_machine(tmp_path: Path) -> None:
    write_sysfs(load_shape("nd-gb300-v6"), tmp_path)
    done = run("topo", "--sysfs", str(tmp_path), "-o", "json")
    assert json.loads(done.stdout)["matrix"]["GPU0"]["NIC2"] == "SYS"


def test_topo_of_several_nodes_requires_node() -> None:
    args = ["--shape", "a4-highgpu-8g", "--shape", "nd-gb300-v6"]
    assert "choose one with --node" in run("topo", *args, "-o", "json").stderr
    assert run("topo", *args, "--node", "nd-gb300-v6-0", "-o", "json").exit_code == 0


def test_suggest_prints_a_checked_manifest() -> None:
    done = run("suggest", "--gpus", "2", "--nics", "2", "--shape", "a4-highgpu-8g")
    assert "matchAttribute: resource.kubernetes.io/pcieRoot" in done.stdout
    assert "# Planned on a4-highgpu-8g: gpu-0-mlx5_0 PIX" in done.stdout


def test_shapes_can_be_listed_shown_and_captured(tmp_path: Path) -> None:
    assert "a4-highgpu-8g" in run("shape", "list").stdout
    assert parse_shape(run("shape", "show", "nd-gb300-v6").stdout) == load_shape("nd-gb300-v6")
    write_sysfs(load_shape("nd-gb300-v6"), tmp_path)
    captured = run("shape", "capture", "--sysfs", str(tmp_path), "--name", "mine").stdout
    assert [nic.rdma for nic in parse_shape(captured).nics] == [f"mlx5_{i}" for i in range(4)]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["plan", "-f", UNALIGNED], "no machines: add --shape"),
        (["plan", "--shape", "a4-highgpu-8g"], "nothing to plan: name files with pods"),
        (["plan", "-f", "nowhere.yaml", "--shape", "a4-highgpu-8g"], "nowhere.yaml: no such file"),
        (["plan", "-f", UNALIGNED, "--shape", "dgx"], "no machine shape 'dgx': known shapes are a3-megagpu-8g"),
        (["plan", "-f", UNALIGNED, "--shape", "nd-gb300-v6=many"], "write NAME=COUNT"),
        (["plan", "-f", UNALIGNED, "--slices", UNALIGNED], "4-1nic-unaligned.yaml:1: no ResourceSlice in the files"),
        (["topo", "--slices", UNALIGNED], "4-1nic-unaligned.yaml:1: no ResourceSlice in the files"),
        (["plan", "-f", str(DOCUMENTS / "1-class.yaml"), "--shape", "a4-highgpu-8g"], "nothing to plan in "),
        (["plan", "-f", UNALIGNED, "--shape", "nd-gb300-v6", "--kubernetes", "new"], "write a version such as 1.36"),
        (["plan", "-f", UNALIGNED, "--shape", "nd-gb300-v6", "--kubernetes", "1.20"], "is not supported"),
        (["explain", "--shape", "a4-highgpu-8g"], "nothing to explain"),
        (["lint"], "no files"),
        (["lint", "-f", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["topo", "--shape", "dgx"], "known shapes are"),
        (["topo", "--sysfs", "/nowhere"], "--sysfs must name a sysfs"),
        (["topo", *RECORDED, "--node", "other"], "--node other: no such node; known: aks-gpu-45139532-vmss000081"),
        (["topo", *RECORDED, "--claim", "x"], "no ResourceClaim or ResourceClaimTemplate x"),
        (["suggest", "--gpus", "9", "--shape", "nd-gb300-v6"], "No machine has 9 GPUs (the largest has 4)"),
        (["suggest"], "no machines"),
        (["shape", "show", "dgx"], "known shapes are"),
        (["shape", "capture", "--sysfs", "/nowhere"], "--sysfs must name a sysfs"),
    ],
)
def test_bad_input_is_a_one_line_error(args: list[str], message: str) -> None:
    done = run(*args)
    assert done.exit_code != 0 and not isinstance(done.exception, (KeyError, TypeError, AttributeError))
    assert message in done.stderr


def test_plan_prints_fixes_of_lint() -> None:
    done = run("plan", "-f", str(DOCUMENTS / "3-template.yaml"), "--shape", "a3-ultragpu-8g")
    assert (
        "add its file with -f, or --assume-class dranet-rdma-for-mpi=DRIVER" in done.stderr
        and "    fix: move it to spec.spec.devices:" in done.stderr
    )


@pytest.mark.parametrize(("version", "exact"), [("1.35", False), ("1.36", True), ("1.37", True)])
def test_plan_warns_before_1_36(version: str, exact: bool) -> None:
    done = run("plan", "-f", UNALIGNED, "--shape", "nd-gb300-v6", "--kubernetes", version, "-o", "json")
    assert json.loads(done.stdout)["exact"] is exact
    assert ("in undefined order" in done.stderr) is not exact


def test_plan_exits_0_with_unschedulable_pods() -> None:
    done = run("plan", "-f", UNALIGNED, "--shape", "a4-highgpu-8g", "-o", "json")
    assert (done.exit_code, len(json.loads(done.stdout)["unschedulable"])) == (0, 1)


def test_recorded_claims_keep_their_devices(tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    result = "{request: nic, driver: dra.net, pool: aks-gpu-45139532-vmss000081, device: pci-0103-00-00-0}"
    file.write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: held}\n"
        f"spec: {{devices: {{}}}}\nstatus: {{allocation: {{devices: {{results: [{result}]}}}}}}\n"
    )
    done = run("plan", "-f", UNALIGNED, *RECORDED, "--slices", str(file), "-o", "json")
    assert [one["pod"] for one in json.loads(done.stdout)["unschedulable"]] == ["1nic-unaligned"]


def test_plan_lists_the_distance_of_every_pair() -> None:
    two = run("suggest", "--gpus", "2", "--nics", "2", "--shape", "nd-gb300-v6").stdout
    done = run("plan", "-f", "-", "--shape", "nd-gb300-v6", "-o", "json", stdin=two)
    distances = json.loads(done.stdout)["pods"][0]["alignment"]["distances"]
    assert distances == {gpu: {f"pci-010{i}-00-00-0": "NODE" for i in (1, 2)} for gpu in ("gpu-0", "gpu-1")}


def test_topo_draws_devices_of_a_template() -> None:
    done = run("topo", "--shape", "nd-gb300-v6=2", "-f", UNALIGNED, "--claim", "1nic-unaligned", "-o", "svg")
    boxes = [e for e in ElementTree.fromstring(done.stdout).iter() if "picked" in e.get("class", "")]
    assert len(boxes) == 2 and "<title>SYS</title>" in done.stdout


def test_topo_explains_a_claim_that_cannot_be_placed() -> None:
    done = run("topo", "--shape", "a4-highgpu-8g", "-f", UNALIGNED, "--claim", "1nic-unaligned", "-o", "svg")
    assert "cannot be placed on these machines: 0/1 nodes are available" in done.stderr


def test_a_yaml_error_names_file_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text("apiVersion: v1\nkind: [\n")
    done = run("plan", "-f", str(file), "--shape", "a4-highgpu-8g")
    assert f"{file}:3:1: not valid YAML" in done.stderr


MANIFESTS = sorted([*DOCUMENTS.glob("*.yaml"), *(DATA.parents[1] / "examples").glob("*/*.yaml")])
PIECES = ['"', "'", "(", ")", "{", "[", "]", "}", ":", "&a", "*a", "null", "-1", "\t", "\u00e9", "|", "9" * 20]


def spoiled(lines: list[str], kind: int, place: int, piece: str) -> None:
    """One small mistake: a line lost, moved in or out, swapped with another, or with something put into it."""
    i, j = place % len(lines), (place * 7 + 3) % len(lines)
    if kind == 0 and len(lines) > 1:
        del lines[i]
    elif kind == 1:
        lines[i] = lines[i][2:]
    elif kind == 2:
        lines[i] = f"  {lines[i]}"
    elif kind == 3:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        at = place % (len(lines[i]) + 1)
        lines[i] = lines[i][:at] + piece + lines[i][at:]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(MANIFESTS),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 500), st.sampled_from(PIECES)), min_size=1, max_size=4),
    st.sampled_from(["plan", "lint", "explain"]),
)
def test_damaged_manifests_do_not_crash_a_command(
    file: Path, mistakes: list[tuple[int, int, str]], command: str
) -> None:
    lines = file.read_text().splitlines()
    for kind, place, piece in mistakes:
        spoiled(lines, kind, place, piece)
    done = run(command, "-f", "-", "--shape", "a4-highgpu-8g", "-o", "json", stdin="\n".join(lines))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception


def test_reads_directories_recursively(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "claim.yaml").write_text(claim("gpu: gpu.nvidia.com\nnic: dranet"))
    assert "no .yaml, .yml, .json file in this folder" in run("lint", str(tmp_path)).stderr
    assert "no-alignment-constraint" in run("lint", "-R", str(tmp_path)).stdout
    assert run("plan", "-R", "-f", str(tmp_path), "--shape", "nd-gb300-v6").exit_code == 0


@pytest.mark.parametrize(
    ("args", "code", "shown"),
    [
        (["plna"], 2, "no such command 'plna'; did you mean plan? (see dranet --help)"),
        (["plan", "-f", UNALIGNED, "--shape", "nd-gb300-v6"], 1, "cannot write to standard output: No space left"),
    ],
    ids=["a misspelt command", "a full disk"],
)
def test_errors_are_one_line(args: list[str], code: int, shown: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "dranet", *args], stdout=full, stderr=subprocess.PIPE, text=True)
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, shown in last) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_completes_shapes() -> None:
    assert complete_shape(None, None, "a4") == ["a4-highgpu-8g", "a4x-highgpu-4g"]  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["plan", "explain", "topo", "suggest"])
def test_selects_a_context(command: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("apiVersion: v1\nkind: Config\ncontexts: []\nclusters: []\nusers: []\n")
    node = ["--node", "n"] if command == "topo" else []
    done = run(command, "--kubeconfig", str(config), "--context", "blue", *node)
    assert done.exit_code == 1 and "blue" in done.stderr


def test_shows_progress_after_a_second_if_enabled(capfd: pytest.CaptureFixture[str]) -> None:
    with single_run(True):
        stage("planning")
    assert capfd.readouterr().err == ""
    with single_run(True):
        began, shown = time.monotonic(), ""
        while not shown:
            time.sleep(0.05)
            shown = capfd.readouterr().err
        assert time.monotonic() - began >= FIRST
    shown += capfd.readouterr().err
    assert re.fullmatch(r"(\rplanning \.\.\. [1-9]\d* s)+\r +\r", shown)
    with single_run(None):
        time.sleep(FIRST + 0.2)
    assert capfd.readouterr().err == "", "standard error is no terminal here"


def virtual_machine(root: Path) -> None:
    """As a cloud's H200 with one NUMA node looks: the kernel knows no NUMA node of the GPU, the uplink is virtio."""
    functions = {
        "0000:00:06.0": {"class": "0x030200", "vendor": "0x10de", "device": "0x2335"},
        "0000:00:03.0": {"class": "0x020000", "vendor": "0x1af4", "device": "0x1041"},
    }
    for address, values in functions.items():
        folder = root / "devices/pci0000:00" / address
        folder.mkdir(parents=True)
        for name, value in {**values, "numa_node": "-1"}.items():
            (folder / name).write_text(value)
        bus = root / "bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / address).symlink_to(folder)
    (root / "devices/pci0000:00/0000:00:03.0/net/eth0").mkdir(parents=True)
    node = root / "devices/system/node/node0"
    node.mkdir(parents=True)
    (node / "cpulist").write_text("0-15\n")


def test_topo_of_a_virtual_machine_matches_nvidia_smi(tmp_path: Path) -> None:
    virtual_machine(tmp_path)
    done = run("topo", "--sysfs", str(tmp_path))
    row = next(line for line in done.stdout.splitlines() if line.startswith("GPU0"))
    assert row.split() == ["GPU0", "X", "0-15", "0", "N/A"], done.stdout
    assert "not shown: eth0, a virtio NIC" in done.stderr
