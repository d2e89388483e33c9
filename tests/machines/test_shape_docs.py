"""The shape in the reference page is a shape."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from dranet.machines.shape import GpuKind, Nic, NicKind, parse_shape
from tests.machines.conftest import cells

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "shapes.md").read_text()


def test_the_example_in_the_page_is_two_devices_below_one_switch() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert cells(parse_shape(text))["GPU0"]["NIC0"] == "PIX"


def test_every_field_of_nics_and_kinds_is_in_the_page() -> None:
    names = [field.name for kind in (GpuKind, NicKind, Nic) for field in msgspec.structs.fields(kind)]
    assert [name for name in names if name not in PAGE] == []
