"""Cards that several claims may have a share of (`--shared-cards`): what is published of them.

The scheduler counts `dra.net/bandwidth`. A claim that does not name it takes all of it, so claims written before cards
were shared still have a card to themselves; one that asks for 100G gets a child with that much. The link's speed stays
published beside it and is not used up: nobody's share of a card makes its link slower.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dranet.inventory.snapshot import NodeDevice
from dranet.model.attributes import BANDWIDTH, ENCAPSULATION, LINK_SPEED
from dranet.model.device import Device, SharePolicy
from dranet.model.limits import ATTRIBUTES_PER_DEVICE
from dranet.model.quantity import QuantityError, parse_quantity

_STEPS = {"1G": 10**9, "100M": 10**8, "10M": 10**7, "1M": 10**6}
_LEAST_SHARES = 40
"""Shares are as round as leaves at least so many of them."""


def shared(device: NodeDevice) -> NodeDevice:
    """The device as one that can be shared; itself where it cannot: no Ethernet, no known speed, no room to say it."""
    published = device.device
    speed = _bits(published.capacity.get(LINK_SPEED, ""))
    room = len(published.attributes) + len(published.capacity) < ATTRIBUTES_PER_DEVICE
    if speed is None or not room or published.attributes.get(ENCAPSULATION) != "ether":
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
    """The API wants the whole card to be a number of steps."""
    fitting = (name for name, size in _STEPS.items() if speed % size == 0 and speed >= _LEAST_SHARES * size)
    return next(fitting, "1")


def _bits(quantity: str) -> int | None:
    try:
        return int(parse_quantity(quantity).value)
    except QuantityError:
        return None


def is_whole(device: Device, consumed: Mapping[str, str]) -> bool:
    """Whether what a claim was given is all there is: then it has the card to itself."""
    given, total = _bits(consumed.get(BANDWIDTH, "")), _bits(device.capacity.get(BANDWIDTH, ""))
    return not device.shares or given is None or total is None or given >= total
