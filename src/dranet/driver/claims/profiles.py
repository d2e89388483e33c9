"""What the place a node runs in adds to a claim: cloud configuration and named profiles.

Their words count last: claim over class over cloud over profile. Profiles are resources (an address from a pool), so
what was asked for is written down before asking, and released when the claim ends or its preparation fails.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import UNSET

from dranet.driver.claims.planner import Wish, blank
from dranet.driver.log_fields import about
from dranet.driver.records.plan import ClaimPlan, DevicePlan, Use
from dranet.inventory.cloud.provider import ClaimJson, CloudProvider, ConfigJson, Identity, ProfileProvider
from dranet.inventory.snapshot import NodeDevice
from dranet.model.errors import DranetError
from dranet.model.netconfig import NetworkConfig
from dranet.model.netconfig_merge import merge
from dranet.model.netconfig_parse import parse

log = logging.getLogger(__name__)


class Profiles:
    """Asks the providers; either may be absent."""

    def __init__(self, cloud: CloudProvider | None = None, provider: ProfileProvider | None = None) -> None:
        self.cloud = cloud
        self.provider = provider

    async def with_cloud(self, found: NodeDevice, asked: NetworkConfig) -> NetworkConfig:
        """What was asked, completed with what the cloud wants for this device."""
        if self.cloud is None:
            return asked
        offered = await self.cloud.config(found.identity)
        if offered and self.provider is None:
            # Nobody asked for a cloud's own profile: without a provider for it the rest of the configuration holds.
            offered = {key: value for key, value in offered.items() if key != "profile"}
        return merge(asked, parse(offered)) if offered else asked

    def provisional(self, wish: Wish) -> DevicePlan:
        """A record good enough to release the profile by."""
        return self.remember(blank(wish.allotted, Use.PENDING, wish.config, wish.seen), wish)

    def remember(self, plan: DevicePlan, wish: Wish) -> DevicePlan:
        """With what the profile was asked for: it has to be given back in the same words, also after a restart."""
        if not wish.config.profile:
            return plan
        return msgspec.structs.replace(plan, profile=wish.config.profile, profile_config=_json(wish.config))

    async def resolve(self, claim: ClaimJson, wish: Wish) -> Wish:
        """The wish with the answer of its profile below what was asked."""
        if not wish.config.profile:
            return wish
        if self.provider is None:
            raise DranetError(
                f"profile {wish.config.profile!r} is asked for, but this driver has no profile provider; "
                "start it with --profile-provider, or leave the profile out"
            )
        answer = await self.provider.get_profile(wish.seen.identity, claim, _json(wish.config))
        return Wish(wish.allotted, wish.seen, merge(wish.config, parse(answer)))

    async def release(self, plan: ClaimPlan) -> None:
        """Give back what profiles gave. A provider that does not answer must not hold the pod."""
        for device in plan.devices:
            if device.profile is None or self.provider is None:
                continue
            with about(device=device.name):
                try:
                    await self.provider.release_profile(_identity(device), _claim(plan), dict(device.profile_config))
                except (DranetError, OSError, TimeoutError) as error:
                    log.warning("profile %s could not be released: %s", device.profile, error)


def _json(config: NetworkConfig) -> ConfigJson:
    built: dict[str, Any] = msgspec.to_builtins(config)
    return {key: value for key, value in built.items() if value is not UNSET}


def _claim(plan: ClaimPlan) -> ClaimJson:
    """The claim as far as it was written down: it may be gone from the API server."""
    return {
        "metadata": {"namespace": plan.namespace, "name": plan.name, "uid": plan.uid},
        "status": {"reservedFor": [{"resource": "pods", "name": plan.pod.name, "uid": plan.pod.uid}]},
    }


def _identity(device: DevicePlan) -> Identity:
    return NodeDevice.from_record(device.snapshot).identity
