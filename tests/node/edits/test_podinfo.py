"""podinfo, which users copy into images: prints the mounted metadata, in Python and in shell."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet.core import podinfo

Mounted = Callable[..., Path]

BETA, ALPHA = podinfo.KNOWN
SCRIPT = Path(podinfo.__file__).with_suffix(".sh")
SHELLS = [words for words in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(words[0])]
"""Those on this machine; the containers of the cluster tier run it with busybox too."""


def document(version: str = BETA, **network: object) -> dict[str, Any]:
    device = {
        "driver": "dra.net",
        "pool": "n",
        "name": "nic0",
        "networkData": {"interfaceName": "net1", "ips": ["10.0.0.1/24"], **network},
        "attributes": {"dra.net/rdmaDevice": {"string": "mlx5_0"}, "dra.net/gidIndex": {"int": 3}},
    }
    return {"kind": "DeviceMetadata", "apiVersion": version, "requests": [{"name": "nic", "devices": [device]}]}


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    def mount(*documents: object, claim: str = "nics", request: str = "nic", driver: str = "dra.net") -> Path:
        folder = tmp_path / "resourceclaims" / claim / request
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{driver}-metadata.json").write_text("\n".join(map(json.dumps, documents)))
        return tmp_path

    return mount


def test_runs_as_a_single_file_without_the_package(mounted: Mounted, tmp_path: Path) -> None:
    copy = shutil.copy(podinfo.__file__, tmp_path / "anything.py")
    base = mounted(document())
    command = [sys.executable, "-I", "-S", copy, "--base", str(base), "-o", "export"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "export DRANET_INTERFACES=net1" in lines
    assert "export DRANET_RDMA_PORTS=mlx5_0:1" in lines
    assert "export DRANET_GID_INDEX=3" in lines


def test_skips_an_unknown_version_for_a_known_one(mounted: Mounted) -> None:
    future = {"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v9", "requests": "?"}
    assert [d["device"] for d in podinfo.devices(str(mounted(future, document(ALPHA))))] == ["nic0"]


def test_shell_quotes_malicious_names(mounted: Mounted) -> None:
    base = mounted(document(interfaceName="net1; echo owned", ips=["$(id)/24"]))
    script = "\n".join(podinfo.exports(podinfo.devices(str(base)))) + "\necho $DRANET_INTERFACES/$DRANET_ADDRESSES"
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "net1; echo owned/$(id)\n"


def test_exports_gid_index_only_if_all_devices_have_the_same(mounted: Mounted) -> None:
    other = document(interfaceName="net2")
    other["requests"][0]["devices"][0]["attributes"]["dra.net/gidIndex"] = {"int": 5}
    mounted(document())
    base = mounted(other, request="second")
    assert not any("GID_INDEX" in line for line in podinfo.exports(podinfo.devices(str(base))))


def test_reports_a_torn_file_and_shows_the_others(mounted: Mounted, capsys: pytest.CaptureFixture[str]) -> None:
    base = mounted(document())
    (base / "resourceclaims/nics/nic/other-metadata.json").write_text('{"kind": ')
    assert len(podinfo.devices(str(base))) == 1
    assert "other-metadata.json" in capsys.readouterr().err


def test_reports_missing_metadata_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert podinfo.main(["--base", str(tmp_path)]) == 1
    assert "name the claim in resources.claims of the container" in capsys.readouterr().err


def test_table_has_one_line_per_device(mounted: Mounted, capsys: pytest.CaptureFixture[str]) -> None:
    assert podinfo.main(["--base", str(mounted(document()))]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["CLAIM", "REQUEST", "DEVICE"]
    assert line.split() == ["nics", "nic", "nic0", "net1", "10.0.0.1/24", "-", "mlx5_0", "3", "-", "-"]


def run_script(shell: list[str], base: Path) -> subprocess.CompletedProcess[str]:
    """With an empty PATH: the script needs no other program."""
    command = [str(shutil.which(shell[0])), *shell[1:], str(SCRIPT), str(base)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/nowhere"})


def unquoted(lines: list[str]) -> list[list[str]]:
    return [shlex.split(line) for line in lines]


@pytest.fixture(params=SHELLS, ids=lambda words: words[0])
def shell(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = request.param
    return words


WORDS = st.text("ab1 -.'\"\\/$;`*>&{}[],:#%", min_size=1, max_size=8)
ADDRESSES = st.text("12af.:", min_size=1, max_size=8).map("{}/24".format)
DEVICES = st.fixed_dictionaries(
    {"driver": st.just("dra.net"), "pool": WORDS, "name": WORDS},
    optional={
        "networkData": st.fixed_dictionaries(
            {}, optional={"interfaceName": WORDS, "ips": st.lists(ADDRESSES, max_size=3), "hardwareAddress": WORDS}
        ),
        "attributes": st.fixed_dictionaries(
            {"resource.kubernetes.io/pcieRoot": st.fixed_dictionaries({"string": WORDS})},
            optional={
                "dra.net/rdmaDevice": st.fixed_dictionaries({"string": WORDS}),
                "dra.net/rdmaPort": st.fixed_dictionaries({"int": st.integers(1, 2)}),
                "dra.net/gidIndex": st.fixed_dictionaries({"int": st.integers(3, 4)}),
                "dra.net/rails": st.fixed_dictionaries({"strings": st.lists(WORDS)}),
            },
        ),
    },
)
FILES = st.dictionaries(
    st.tuples(st.sampled_from(["nic", "nic-2"]), st.sampled_from(["a", "a-b"])),
    st.lists(DEVICES, max_size=3),
    min_size=1,
)


@given(files=FILES, indent=st.sampled_from([None, 2]))
@settings(max_examples=12, deadline=None)
def test_shell_and_python_print_the_same_for_any_devices(
    files: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]], indent: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for (claim, request), devices in files.items():
            path = Path(folder, "resourceclaims", claim, request, "dra.net-metadata.json")
            path.parent.mkdir(parents=True)
            older = {"kind": "DeviceMetadata", "apiVersion": ALPHA, "requests": []}
            newest = {**older, "apiVersion": BETA, "requests": [{"name": request, "devices": devices}]}
            future = {**newest, "apiVersion": "metadata.resource.k8s.io/v9"}
            path.write_text("\n".join(json.dumps(one, indent=indent) for one in (future, newest, older)))
        found = podinfo.devices(folder)
        wanted = unquoted(podinfo.exports(found)) if found else []
        for words in SHELLS:
            assert unquoted(run_script(words, Path(folder)).stdout.splitlines()) == wanted, words


def test_shell_reads_files_with_crlf(mounted: Mounted, shell: list[str]) -> None:
    base = mounted(document())
    (file,) = base.rglob("*.json")
    file.write_bytes(json.dumps(json.loads(file.read_text()), indent=1).replace("\n", "\r\n").encode())
    assert ["export", "DRANET_INTERFACES=net1"] in unquoted(run_script(shell, base).stdout.splitlines())


@pytest.mark.parametrize("torn", ['{"kind": ', '{"kind": "Dev', '{"kind": "\\u0044eviceMetadata"}', ""])
def test_shell_reports_an_unreadable_file_and_shows_the_others(mounted: Mounted, shell: list[str], torn: str) -> None:
    base = mounted(document())
    (base / "resourceclaims/nics/nic/other-metadata.json").write_text(torn)
    done = run_script(shell, base)
    assert "other-metadata.json" in done.stderr
    assert unquoted(done.stdout.splitlines()) == unquoted(podinfo.exports(podinfo.devices(str(base))))


def test_shell_exits_with_1_without_metadata(tmp_path: Path, shell: list[str]) -> None:
    done = run_script(shell, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "name the claim in resources.claims of the container" in done.stderr
