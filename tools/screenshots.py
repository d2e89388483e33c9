"""Write the pictures of docs/tasks/page.md: ``python -m tools.screenshots``. Needs a browser, see tools/browser.sh."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.web.browser import MISSING, Browser, available, browser
from tests.web.fleets import fleet_file
from tests.web.lab import EXAMPLES, Lab, lab

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FAULTS = {"mlx5_6": "dra.net/link-down", "mlx5_7": "dra.net/netdev-elsewhere"}


def main() -> int:
    if not available():
        print(MISSING, file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with browser(1440, 900) as window:
        with lab() as cluster:
            _small_cluster(cluster, window)
        with tempfile.TemporaryDirectory() as folder:
            _fleet(Path(folder), window)
    return 0


def _fleet(folder: Path, window: Browser) -> None:
    """Ten thousand machines: light, dark, and on a phone."""
    looks = (
        ("page-10000", "light", 1440, 900),
        ("page-10000-dark", "dark", 1440, 900),
        ("page-phone", "light", 390, 844),
    )
    for name, colours, width, height in looks:
        window.size(width, height)
        window.colours(colours)
        window.open(fleet_file(folder, 10_000))
        window.run("state.group = document.getElementById('group').value = 'block'; refreshNodes()")
        _save(window, name)
    window.size(1440, 900)
    window.colours("light")
    window.run("zoomTo('block-007')")
    _save(window, "page-block")


def _small_cluster(cluster: Lab, window: Browser) -> None:
    cluster.call(lambda: cluster.machines("a4-highgpu-8g=2", "nd-gb300-v6=2"))
    cluster.call(lambda: cluster.change_slice("a4-highgpu-8g-0", "dra.net", _tainted))
    cluster.do(cluster.run(("2-gke-nvidia-dra/claims.yaml", "2-gke-nvidia-dra/workers.yaml")))
    gb300 = ("4-aks-gb300/claims.yaml", "4-aks-gb300/unaligned.yaml", "4-aks-gb300/mpijob.yaml")
    cluster.do(cluster.run(gb300, template="1nic-unaligned"))
    window.open(cluster.url)
    window.wait("state.holders.size === 4")
    _save(window, "page")
    window.run("pick({holder: 'default/nccl-test-dra-worker-0'})")
    window.wait("document.getElementById('explain')")
    _save(window, "page-pod")
    window.colours("dark")
    files = ("1-gke-rdma/claims.yaml", "1-gke-rdma/workers-4x4.yaml")
    manifest = "\n---\n".join((EXAMPLES / file).read_text("utf-8") for file in files)
    window.run("document.getElementById('manifest').value = arguments[0]; tryManifest()", manifest)
    window.wait("document.querySelectorAll('#tried h3').length === 2")
    window.run("document.querySelector('#tried .item').click(); showTab('try')")
    _save(window, "page-plan-dark")


def _tainted(device: dict[str, Any]) -> dict[str, Any]:
    fault = FAULTS.get(device["attributes"]["dra.net/rdmaDevice"]["string"])
    return {**device, "taints": [{"key": fault, "effect": "NoSchedule"}]} if fault else device


def _save(window: Browser, name: str) -> None:
    """The screen, once nothing moves any more."""
    window.run("state.fresh.clear(); refreshNodes()")
    window.wait("document.getAnimations().every((one) => one.playState === 'finished')")
    target = IMAGES / f"{name}.png"
    target.write_bytes(window.screenshot())
    print(target)


if __name__ == "__main__":
    sys.exit(main())
