"""Devices that several claims can share (`--shared-cards`): what is published about them.

The scheduler counts `dra.net/bandwidth`. A claim that does not request it consumes all of it, so claims written for
exclusive devices still get a whole device; a claim that requests 100G gets a child interface with that much. The link
speed is published too and is not consumed: a share does not make the link slower.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dranet.core.attributes import BANDWIDTH, ENCAPSULATION, LINK_SPEED
from dranet.core.device import Device, SharePolicy
from dranet.core.quantity import QuantityError, parse_quantity
from dranet.core.slices import ATTRIBUTES_PER_DEVICE
from dranet.node.inventory.snapshot import NodeDevice

_STEPS = {"1G": 10**9, "100M": 10**8, "10M": 10**7, "1M": 10**6}
_MIN_SHARES = 40
"""The step is the roundest one that allows at least this many shares."""


def make_shareable(device: NodeDevice) -> NodeDevice:
    """The device as a shareable one; unchanged if it is not Ethernet, has no known speed or no room for a capacity."""
    published = device.device
    speed = _bits(published.capacity.get(LINK_SPEED, ""))
    has_room = len(published.attributes) + len(published.capacity) < ATTRIBUTES_PER_DEVICE
    if speed is None or not has_room or published.attributes.get(ENCAPSULATION) != "ether":
        return device
    return msgspec.structs.replace(device, device=_with_shares(published, speed))


def _with_shares(device: Device, speed: int) -> Device:
    value, step = device.capacity[LINK_SPEED], _step(speed)
    return msgspec.structs.replace(
        device,
        capacity={**device.capacity, BANDWIDTH: value},
        shares={
            BANDWIDTH: SharePolicy(default=value, least=step, step=step),
            LINK_SPEED: SharePolicy(default="0", least="0"),
        },
    )


def _step(speed: int) -> str:
    """The API requires the total to be a multiple of the step."""
    fitting = (name for name, size in _STEPS.items() if speed % size == 0 and speed >= _MIN_SHARES * size)
    return next(fitting, "1")


def _bits(quantity: str) -> int | None:
    try:
        return int(parse_quantity(quantity).value)
    except QuantityError:
        return None


def consumes_whole_device(device: Device, consumed: Mapping[str, str]) -> bool:
    """Whether a claim consumes all bandwidth, so that it has the device exclusively."""
    given, total = _bits(consumed.get(BANDWIDTH, "")), _bits(device.capacity.get(BANDWIDTH, ""))
    return not device.shares or given is None or total is None or given >= total
