"""The tool's own promises that need no cluster: no half-made cache entry, no stranger ended, same image twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cluster.kubebed import BedError
from tests.cluster.kubebed.build import GoProgram, kubernetes_program, wrapper_go_mod
from tests.cluster.kubebed.cache import cache_root, cached
from tests.cluster.kubebed.cli import main
from tests.cluster.kubebed.images import ImageConfig, image_from_root
from tests.cluster.kubebed.layout import Layout, NodeLayout
from tests.cluster.kubebed.parts import kubernetes_version
from tests.cluster.kubebed.processes import Processes, Record, start_time
from tests.cluster.kubebed.startup import percentile
from tests.cluster.kubebed.toolchain import SUITE, VERSION, go


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_root()


def test_a_failed_build_leaves_nothing_in_the_cache(own_cache: Path) -> None:
    def half(folder: Path) -> None:
        (folder / "half").touch()
        raise BedError("no more")

    with pytest.raises(BedError):
        cached("thing-1", half)
    assert not [path for path in own_cache.rglob("*") if not path.name.endswith(".lock")]


def test_a_finished_entry_is_not_built_again(own_cache: Path) -> None:
    built: list[Path] = []
    assert cached("thing-1", built.append) == cached("thing-1", built.append)
    assert len(built) == 1


def test_scratch_of_a_killed_builder_is_removed_by_the_next(own_cache: Path) -> None:
    abandoned = own_cache / ".thing-1.tmp-dead"
    abandoned.mkdir(parents=True)
    cached("thing-1", lambda folder: None)
    assert not abandoned.exists()


def test_clean_empties_the_cache(own_cache: Path) -> None:
    cached("thing-1", lambda folder: None)
    assert main(["clean"]) == 0
    assert not own_cache.exists()


def test_an_unknown_add_on_is_refused_by_name(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_a_process_with_a_recorded_number_but_another_start_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            started = start_time(stranger.pid)
            assert started is not None
            assert Record("mine", stranger.pid, started).alive()
            assert not Record("mine", stranger.pid, started - 1).alive()
        finally:
            stranger.kill()


def test_a_second_process_finds_and_stops_what_the_first_started(tmp_path: Path) -> None:
    record = Processes(tmp_path).start("sleeper", ["sleep", "60"])
    later = Processes(tmp_path)
    assert later.find("sleeper") == record
    later.stop("sleeper")
    assert not record.alive()
    assert later.records() == []


def test_an_image_of_the_same_files_is_the_same_bytes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/name").write_text("one")
    for name in ("a.tar", "b.tar"):
        image_from_root(root, tmp_path / name, "localhost/same:1", ImageConfig(("/bin/true",)))
        (root / "etc/name").touch()
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_the_wrapper_takes_each_staging_module_at_the_release_of_the_server(tmp_path: Path) -> None:
    published = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n"
    (tmp_path / "go.mod").write_text(published)
    text = wrapper_go_mod(kubernetes_program("kubelet", "v1.36.4"), tmp_path)
    assert "k8s.io/api => k8s.io/api v0.36.4" in text
    assert "require k8s.io/kubernetes v1.36.4" in text
    assert "module k8s.io/kubernetes\n" not in text


def test_a_program_at_the_root_of_its_module_has_the_module_as_import_path() -> None:
    assert GoProgram("coredns", "example.invalid/dns", "v1.0.0", "").import_path == "example.invalid/dns"


def test_an_unknown_kubernetes_version_names_the_known_ones() -> None:
    assert kubernetes_version("1.34") == "v1.34.4"
    assert kubernetes_version("1.34.2") == "v1.34.2"
    with pytest.raises(BedError, match=r"1\.36"):
        kubernetes_version("1.9")


def test_two_beds_share_no_address_name_or_folder() -> None:
    first, second = Layout(0), Layout(1)
    for name in ("folder", "bridge", "network", "api_address", "hub_address"):
        assert getattr(first, name) != getattr(second, name)
    assert NodeLayout(first, 1).uplink != NodeLayout(second, 1).uplink
    assert NodeLayout(first, 1).cgroup != NodeLayout(second, 1).cgroup


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, percent) for percent in (50, 90, 99)] == [50.0, 90.0, 99.0]
    assert percentile([7.0], 50) == 7.0


def test_a_machine_without_go_takes_debians(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_cache / f"deb/{SUITE}-golang-{VERSION}").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert go() == str(own_cache / f"deb/{SUITE}-golang-{VERSION}/usr/lib/go-{VERSION}/bin/go")
    (tmp_path / "go").write_text("#!/bin/sh\n")
    (tmp_path / "go").chmod(0o755)
    assert go() == str(tmp_path / "go")
