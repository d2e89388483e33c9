"""What a change touches: a provider, a rule, a shape and a part are one file each, added to a copy of the tree.

`docs/architecture.md` has the table of ten; these four can be proved without a reader. The copy is used as it is, by
another interpreter, so nothing of it was prepared for the newcomer.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "dranet"

PROVIDER = '''
"""A cloud that is always there."""

from dranet.node.inventory.cloud.provider import Cloud, CloudContext
from dranet.core.attributes import AttributeDoc


class Newcomer:
    name = "NEWCOMER"

    def attributes(self, device):
        return {"newcomer.example/rack": "r7"}

    async def config(self, device):
        return None

    async def refresh(self, devices):
        return False


async def detect(context: CloudContext) -> Newcomer:
    return Newcomer()


ATTRIBUTES = (AttributeDoc("newcomer.example/rack", "string", "the rack", "never"),)
CLOUD = Cloud("NEWCOMER", detect, rank=5, attributes=ATTRIBUTES)
'''

USES_PROVIDER = """
import asyncio
from dranet.node.inventory.cloud import CloudContext, Identity, find_provider, hint_problem, installed_clouds
from dranet.advise.lint.known_attributes import all_known

assert hint_problem("NEWCOMER", "") is None
assert installed_clouds()[0].name == "NEWCOMER", "the lowest rank comes first"
found = asyncio.run(find_provider(CloudContext(), "NEWCOMER")).provider
assert found.attributes(Identity("NIC")) == {"newcomer.example/rack": "r7"}
assert "newcomer.example/rack" in all_known(), "lint knows its attributes"
"""

RULE = '''
"""Names that say nothing."""

from dranet.advise.lint.rules.base import WARNING, finding, rule

_BAD = "apiVersion: v1\\nkind: Pod\\nmetadata: {name: test}\\nspec: {containers: [{name: c, image: i}]}\\n"


@rule("name-says-nothing", WARNING, "A pod called test", why="Which?", bad=_BAD, good=_BAD.replace("test", "trainer"))
def name_says_nothing(context):
    for obj in context.manifests.objects:
        if obj.name == "test":
            yield finding(obj, ("metadata", "name"), "a pod called test", "say what it is")
'''

USES_RULE = """
from dranet.advise.lint import lint
from dranet.advise.lint import lint_rules_page
from dranet.advise.lint import RULES
from dranet.advise.manifests import read_text

rule = RULES["name-says-nothing"]
found = [finding.rule for finding in lint(*read_text(rule.bad, "f.yaml"))]
assert "name-says-nothing" in found, found
assert "## name-says-nothing" in lint_rules_page()
"""

USES_SHAPE = """
from dranet.machines.machine import machine_of_shape
from dranet.machines.shape import load_shape, shape_names

assert "newcomer" in shape_names()
assert len(machine_of_shape(load_shape("newcomer"), "n").gpus) > 0
"""

FEATURE = '''
"""A part that only remembers."""

import msgspec

from dranet.node.features.base import Feature


class NewcomerRecord(msgspec.Struct, frozen=True):
    word: str


class NewcomerFeature(Feature[NewcomerRecord]):
    tag, order, record_type = "newcomer", 60, NewcomerRecord


FEATURE = NewcomerFeature()
'''

USES_PART = """
from dranet.node.features import FEATURES

assert "newcomer" in [feature.tag for feature in FEATURES]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package, in a folder to import from."""
    shutil.copytree(SOURCE, tmp_path / "dranet", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(tree: Path, program: str) -> None:
    first = f"import sys; sys.path.insert(0, {str(tree)!r})\nimport dranet\n"
    first += f"assert dranet.__file__.startswith({str(tree)!r})\n"
    done = subprocess.run([sys.executable, "-c", first + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cloud_provider_is_one_file_and_one_entry_point(tree: Path) -> None:
    (tree / "dranet/node/inventory/cloud/newcomer.py").write_text(PROVIDER)
    announced = tree / "newcomer-1.dist-info"  # what the line in pyproject.toml becomes when the package is installed
    announced.mkdir()
    (announced / "METADATA").write_text("Metadata-Version: 2.1\nName: newcomer\nVersion: 1\n")
    point = "[dranet.cloud_providers]\nNEWCOMER = dranet.node.inventory.cloud.newcomer\n"
    (announced / "entry_points.txt").write_text(point)
    run(tree, USES_PROVIDER)


def test_a_lint_rule_is_one_file(tree: Path) -> None:
    (tree / "dranet/advise/lint/rules/newcomer.py").write_text(RULE)
    run(tree, USES_RULE)


def test_a_machine_shape_is_one_file(tree: Path) -> None:
    shapes = tree / "dranet/machines/shapes"
    text = (shapes / "a4-highgpu-8g.toml").read_text().replace('"a4-highgpu-8g"', '"newcomer"')
    (shapes / "newcomer.toml").write_text(text)
    run(tree, USES_SHAPE)


def test_a_part_of_a_device_is_one_file(tree: Path) -> None:
    """That such a part is planned, kept, carried out and taken back is shown in tests/node/driver/test_features.py."""
    (tree / "dranet/node/features/newcomer.py").write_text(FEATURE)
    run(tree, USES_PART)
