"""The driver's own image, unpacked inside the project, where the guest sees it: what users run.

Built and unpacked on the host, before the guest's tests that need it.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.vm.architecture import Architecture
from tests.vm.cache import say

PROJECT = Path(__file__).resolve().parents[2]
ROOT = PROJECT / ".vm-image"
TEST = "tests/vm/test_image.py"


def unpack(kind: Architecture) -> None:
    say(f"the driver's image for {kind.name}: building")
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    with tempfile.TemporaryDirectory(prefix="dranet-image-") as name:
        archive, layout = Path(name, "image.tar"), Path(name, "layout")
        build = [sys.executable, str(PROJECT / "deploy/image/build.py"), "--arch", kind.name, "--output", str(archive)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        layout.mkdir()
        subprocess.run(["tar", "-xf", str(archive), "-C", str(layout)], check=True)
        [image] = json.loads((layout / "index.json").read_bytes())["manifests"]
        for layer in json.loads(_blob(layout, image).read_bytes())["layers"]:
            subprocess.run(["tar", "-xzf", str(_blob(layout, layer)), "-C", str(ROOT)], check=True)


def _blob(layout: Path, descriptor: dict[str, Any]) -> Path:
    return layout / "blobs" / str(descriptor["digest"]).replace(":", "/")
