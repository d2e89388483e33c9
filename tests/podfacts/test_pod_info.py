"""The file people copy into images: prints what the mounted metadata says, by Python and by a shell."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet import podinfo

BETA, ALPHA = podinfo.KNOWN
SCRIPT = Path(podinfo.__file__).with_suffix(".sh")
SHELLS = [words for words in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(words[0])]
"""Those of this machine; busybox also runs it in the containers of the cluster tier."""


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


def said_by(shell: list[str], base: Path) -> subprocess.CompletedProcess[str]:
    """No program can be found: the shell is alone."""
    command = [str(shutil.which(shell[0])), *shell[1:], str(SCRIPT), str(base)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/nowhere"})


def unquoted(lines: list[str]) -> list[list[str]]:
    return [shlex.split(line) for line in lines]


@pytest.fixture(params=SHELLS, ids=lambda words: words[0])
def shell(request: pytest.FixtureRequest) -> list[str]:
    return request.param


WORDS = st.text("ab1 -.'\"\\/$;`*>&{}[],:#%", min_size=1, max_size=8)
ADDRESSES = st.text("12af.:", min_size=1, max_size=8).map("{}/24".format)
CARDS = st.fixed_dictionaries(
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
    st.tuples(st.sampled_from(["nic", "nic-2"]), st.sampled_from(["a", "a-b"])), st.lists(CARDS, max_size=3), min_size=1
)


@given(files=FILES, indent=st.sampled_from([None, 2]))
@settings(max_examples=12, deadline=None)
def test_a_shell_alone_says_what_python_says_of_any_cards(files, indent):
    with tempfile.TemporaryDirectory() as folder:
        for (claim, asked), cards in files.items():
            path = Path(folder, "resourceclaims", claim, asked, "dra.net-metadata.json")
            path.parent.mkdir(parents=True)
            older = {"kind": "DeviceMetadata", "apiVersion": ALPHA, "requests": []}
            newest = {**older, "apiVersion": BETA, "requests": [{"name": asked, "devices": cards}]}
            future = {**newest, "apiVersion": "metadata.resource.k8s.io/v9"}
            path.write_text("\n".join(json.dumps(one, indent=indent) for one in (future, newest, older)))
        found = podinfo.devices(folder)
        wanted = unquoted(podinfo.exports(found)) if found else []
        for words in SHELLS:
            assert unquoted(said_by(words, Path(folder)).stdout.splitlines()) == wanted, words


def test_a_shell_takes_our_own_files_in_every_form_of_line_ends(mounted, shell):
    base = mounted(document())
    (file,) = base.rglob("*.json")
    file.write_bytes(json.dumps(json.loads(file.read_text()), indent=1).replace("\n", "\r\n").encode())
    assert ["export", "DRANET_INTERFACES=net1"] in unquoted(said_by(shell, base).stdout.splitlines())


@pytest.mark.parametrize("torn", ['{"kind": ', '{"kind": "Dev', '{"kind": "\\u0044eviceMetadata"}', ""])
def test_a_shell_says_which_file_it_cannot_read_and_shows_the_others(mounted, shell, torn):
    base = mounted(document())
    (base / "resourceclaims/nics/nic/other-metadata.json").write_text(torn)
    done = said_by(shell, base)
    assert "other-metadata.json" in done.stderr
    assert unquoted(done.stdout.splitlines()) == unquoted(podinfo.exports(podinfo.devices(str(base))))


def test_a_shell_ends_with_1_where_nothing_is_mounted(tmp_path, shell):
    done = said_by(shell, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "does the container name its claim?" in done.stderr
