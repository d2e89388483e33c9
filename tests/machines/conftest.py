"""Shapes as machines, and the public recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.machines.machine import Machine, machine_of_shape
from dranet.machines.matrix import matrix
from dranet.machines.shape import Shape, load_shape, shape_names

DATA = Path(__file__).parent.parent / "data" / "machines"
every_shape = pytest.mark.parametrize("name", shape_names())


def machine_of(shape: str | Shape) -> Machine:
    return machine_of_shape(load_shape(shape) if isinstance(shape, str) else shape, "n")


def cells(shape: str | Shape) -> dict[str, dict[str, str]]:
    return matrix(machine_of(shape))
