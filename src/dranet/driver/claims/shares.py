"""A share of a card is an interface on top of it: a claim that was given part of one cannot have the whole moved."""

from __future__ import annotations

from dranet.driver.claims.allotment import Allotted
from dranet.inventory.sharing import is_whole
from dranet.inventory.snapshot import NodeDevice
from dranet.model.attributes import BANDWIDTH
from dranet.model.errors import DranetError
from dranet.model.netconfig import IPVLAN, PASSTHROUGH, Interface, NetworkConfig
from dranet.model.netconfig_merge import merge

_DEFAULT = NetworkConfig(interface=Interface(type=IPVLAN))
"""Where the claim does not say which kind: most clouds drop the foreign addresses of a macvlan."""


def with_share(item: Allotted, found: NodeDevice, config: NetworkConfig) -> NetworkConfig:
    """What is asked of a device, as it can be for what the claim was given of it."""
    if item.admin or is_whole(found.device, item.consumed):
        return config
    if config.link.type == PASSTHROUGH:
        share = f"{item.consumed[BANDWIDTH]} of {found.device.capacity[BANDWIDTH]}"
        raise DranetError(
            f"device {item.device}: the claim has a share of it ({share}), which interface.type: Passthrough cannot "
            "give; ask for the whole card (no capacity request) or for type IPVLAN or Macvlan"
        )
    return merge(config, _DEFAULT)
