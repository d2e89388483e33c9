"""`dranet lint --fix` corrects what has one correction, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.inputs import run

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents"
CLAIM = """\
# NICs of team a
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: nic}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly:
          deviceClasName: dranet  # any NIC
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resourceClaims:
  - {name: nic, resourceClaimTemplateName: nic}
  containers:
  - name: c
    image: i
"""


def fixed(tmp_path: Path, text: str, *args: str) -> tuple[str, str]:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    done = run("lint", file, "--fix", "--fail-on", "never", *args)
    assert done.exit_code == 0, done.output
    return file.read_text(), done.output


def test_a_typo_is_renamed_and_the_claim_is_named(tmp_path: Path) -> None:
    text, output = fixed(tmp_path, CLAIM)
    assert "deviceClassName: dranet  # any NIC" in text and text.startswith("# NICs of team a\n")
    pod = list(yaml.safe_load_all(text))[1]
    assert pod["spec"]["containers"][0]["resources"] == {"claims": [{"name": "nic"}]}
    assert "fixed: " in output and "[unknown-field]" in output and "[claim-not-named]" in output
    assert "0 errors, 0 warnings" in output


def test_the_misplaced_config_of_document_3_is_moved(tmp_path: Path) -> None:
    text, output = fixed(tmp_path, (DOCUMENTS / "3-template.yaml").read_text())
    spec = yaml.safe_load(text)["spec"]["spec"]
    assert set(spec) == {"devices"}
    assert spec["devices"]["config"][0]["opaque"]["parameters"] == {"interface": {"name": "dranet0"}}
    assert "misplaced-field" in output


def test_rdma_needs_ipc_lock(tmp_path: Path) -> None:
    rdma = CLAIM.replace("deviceClasName: dranet ", "deviceClassName: dranet-rdma ")
    pod = list(yaml.safe_load_all(fixed(tmp_path, rdma, "--shape", "a4-highgpu-8g")[0]))[1]
    assert pod["spec"]["containers"][0]["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("deviceClasName", "whatever"),  # nothing is similar
        ("  - name: c\n", "  - {name: other, image: i}\n  - name: c\n"),  # which container uses the claim?
    ],
)
def test_what_needs_a_decision_stays(tmp_path: Path, old: str, new: str) -> None:
    good = CLAIM.replace("deviceClasName", "deviceClassName") if old != "deviceClasName" else CLAIM
    wrong = good.replace(old, new)
    text, _ = fixed(tmp_path, wrong)
    assert text == wrong or "resources" in text
    assert ("whatever" in text) == ("whatever" in wrong) and ("resources" not in text) == ("other" in wrong)


def test_a_file_without_findings_is_not_touched(tmp_path: Path) -> None:
    good, _ = fixed(tmp_path, CLAIM)
    (tmp_path / "job.yaml").chmod(0o444)
    before = (tmp_path / "job.yaml").stat().st_mtime_ns
    assert run("lint", tmp_path / "job.yaml", "--fix").exit_code == 0
    assert (tmp_path / "job.yaml").stat().st_mtime_ns == before and good == (tmp_path / "job.yaml").read_text()


def test_standard_input_cannot_be_fixed() -> None:
    done = run("lint", "-", "--fix", stdin=CLAIM)
    assert done.exit_code == 2 and "--fix writes files; <stdin> is not one" in done.output
