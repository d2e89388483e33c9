"""Configuration from outside the claim: cloud configuration and named profiles.

Precedence: claim over class over cloud over profile. Profiles are resources (an address from a pool), so a request is
written to the store before the provider is asked, and released with the claim or when its preparation fails.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from dranet.core.errors import DranetError
from dranet.core.logs import get_logger, log_context
from dranet.core.netconfig import NetworkConfig
from dranet.core.netconfig_merge import merge
from dranet.core.netconfig_parse import parse
from dranet.node.claims.planner import DeviceRequest, new_device_plan
from dranet.node.inventory.cloud.provider import ClaimJson, CloudProvider, ConfigJson, Identity, ProfileProvider
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.records.plan import AttachMode, ClaimPlan, DevicePlan

log = get_logger(__name__)


class Profiles:
    """Asks the providers; either may be absent."""

    def __init__(self, cloud: CloudProvider | None = None, provider: ProfileProvider | None = None) -> None:
        self.cloud = cloud
        self.provider = provider

    async def with_cloud_config(self, device: NodeDevice, config: NetworkConfig) -> NetworkConfig:
        """The requested configuration, completed with the cloud's for this device."""
        if self.cloud is None:
            return config
        offered = await self.cloud.config(device.identity)
        if offered and self.provider is None:
            # The claim did not ask for the cloud's profile: without a profile provider the other fields still apply.
            offered = {key: value for key, value in offered.items() if key != "profile"}
        return merge(config, parse(offered)) if offered else config

    def provisional_plan(self, request: DeviceRequest) -> DevicePlan:
        """A plan with just enough to release the profile."""
        blank = new_device_plan(request.allocated, AttachMode.PENDING, request.config, request.device)
        return self.with_profile(blank, request)

    def with_profile(self, plan: DevicePlan, request: DeviceRequest) -> DevicePlan:
        """With the request to the profile provider: the release has to repeat it exactly, also after a restart."""
        if not request.config.profile:
            return plan
        return msgspec.structs.replace(plan, profile=request.config.profile, profile_config=_json(request.config))

    async def resolve(self, claim: ClaimJson, request: DeviceRequest) -> DeviceRequest:
        """The request, completed with the answer of its profile."""
        if not request.config.profile:
            return request
        if self.provider is None:
            raise DranetError(
                f"profile {request.config.profile!r} needs a profile provider, and this driver has none; "
                "set --profile-provider, or remove the profile from the claim"
            )
        answer = await self.provider.get_profile(request.device.identity, claim, _json(request.config))
        return msgspec.structs.replace(request, config=merge(request.config, parse(answer)))

    async def release(self, plan: ClaimPlan) -> None:
        """Release the profiles of a claim. A provider that does not answer must not block the pod's deletion."""
        for device in plan.devices:
            if device.profile is None or self.provider is None:
                continue
            with log_context(device=device.name):
                try:
                    await self.provider.release_profile(_identity(device), _claim(plan), dict(device.profile_config))
                except (DranetError, OSError, TimeoutError) as error:
                    log.warning("Could not release profile", profile=device.profile, error=error)


def _json(config: NetworkConfig) -> ConfigJson:
    built: dict[str, Any] = msgspec.to_builtins(config)
    return {key: value for key, value in built.items() if value is not UNSET}


def _claim(plan: ClaimPlan) -> ClaimJson:
    """The claim as far as the plan has it: the API server may have deleted it."""
    return {
        "metadata": {"namespace": plan.namespace, "name": plan.name, "uid": plan.uid},
        "status": {"reservedFor": [{"resource": "pods", "name": plan.pod.name, "uid": plan.pod.uid}]},
    }


def _identity(device: DevicePlan) -> Identity:
    return NodeDevice.from_record(device.snapshot).identity
