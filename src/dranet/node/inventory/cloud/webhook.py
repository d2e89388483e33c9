"""The webhook: any HTTP server as cloud provider, profile provider, or both.

Attributes are fetched when a device appears and at every refresh, never during a scan. Attribute and configuration
requests differ in what they call ``name`` (the interface there, the device here): that is the reference driver's
protocol, and existing webhooks depend on it. Profile requests carry the claim's UID, for older webhooks of it, and the
claim, for newer ones. ``docs/profiles.md`` has the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dranet.core.device import attribute_from_api, attribute_kind
from dranet.core.errors import InvalidInput
from dranet.node.inventory.cloud.http import CloudError, HttpClient, expect_ok
from dranet.node.inventory.cloud.provider import Attributes, ClaimJson, Cloud, CloudContext, ConfigJson, Identity

REQUEST_TIMEOUT = 10.0
_CONCURRENT_REQUESTS = 8


async def connect(url: str, timeout: float = REQUEST_TIMEOUT) -> Webhook:
    """Ask the webhook which services it offers; raises :class:`CloudError` if it does not answer."""
    if not url:
        raise InvalidInput("the webhook provider needs --webhook-url")
    http = HttpClient(url, timeout)
    services = expect_ok(await http.get("/health"), f"{url}/health").json()
    if not isinstance(services, dict):
        raise CloudError(f"{url}/health answered {services!r}, not an object with cloudProvider and profileProvider")
    return Webhook(http, clouds=services.get("cloudProvider") is True, profiles=services.get("profileProvider") is True)


async def detect(context: CloudContext) -> Webhook | None:
    """The webhook if a URL is set. If it is not a cloud provider, the error is final: a retry would not help."""
    if not context.webhook_url:
        return None
    webhook = await connect(context.webhook_url)
    if not webhook.clouds:
        raise InvalidInput(f"{context.webhook_url} is not a cloud provider (cloudProvider is false)")
    return webhook


class Webhook:
    """Keeps the last valid answer for each device."""

    name = "webhook"

    def __init__(self, http: HttpClient, *, clouds: bool, profiles: bool) -> None:
        self._http = http
        self.clouds = clouds
        self.profiles = profiles
        self._known: dict[Identity, Attributes] = {}

    def attributes(self, device: Identity) -> Attributes:
        return self._known.get(device, {})

    async def config(self, device: Identity) -> ConfigJson | None:
        """The webhook's configuration for the device; an empty object is an answer too."""
        if not self.clouds:
            return None
        return _config(await self._post("/GetDeviceConfig", _request(device, device.device)), "GetDeviceConfig")

    async def refresh(self, devices: Sequence[Identity]) -> bool:
        """Ask about every device. One whose answer is invalid keeps its last valid one; raises the first error."""
        gate = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        answers = await asyncio.gather(*(self._ask(d, gate) for d in devices), return_exceptions=True)
        before, self._known = self._known, {}
        for device, answer in zip(devices, answers, strict=True):
            known = before.get(device, {}) if isinstance(answer, BaseException) else answer
            self._known[device] = known
        if failed := [answer for answer in answers if isinstance(answer, BaseException)]:
            raise failed[0]
        return any(attributes != before.get(device, {}) for device, attributes in self._known.items())

    async def get_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> ConfigJson:
        """The profile's configuration; the same device and claim always get the same answer."""
        return _config(await self._profile("/GetProfileConfig", device, claim, config), "GetProfileConfig")

    async def release_profile(self, device: Identity, claim: ClaimJson, config: ConfigJson) -> None:
        """Tell the webhook that the claim no longer uses the device."""
        await self._profile("/ReleaseProfileConfig", device, claim, config, parse=False)

    async def _ask(self, device: Identity, gate: asyncio.Semaphore) -> Attributes:
        async with gate:
            return _attributes(await self._post("/GetDeviceAttributes", _request(device, device.interface)))

    async def _profile(
        self, path: str, device: Identity, claim: ClaimJson, config: ConfigJson, *, parse: bool = True
    ) -> Any:
        if not self.profiles:
            raise CloudError(f"the webhook {self._http.base_url} has no profiles (profileProvider is false)")
        owner = {"claim_uid": claim["metadata"]["uid"], "claim": claim}
        body = {"device": _request(device, device.device), **owner, "config": config}
        return await self._post(path, body, parse=parse)

    async def _post(self, path: str, body: Any, *, parse: bool = True) -> Any:
        answer = expect_ok(await self._http.post_json(path, body), path.lstrip("/"))
        return answer.json() if parse else None


def _request(device: Identity, name: str) -> dict[str, str]:
    optional = {"mac_address": device.mac, "pci_address": device.pci}
    return {**{key: value for key, value in optional.items() if value}, "name": name}


def _config(answer: Any, what: str) -> ConfigJson:
    if not isinstance(answer, dict):
        raise CloudError(f"{what} answered {answer!r}, not a network configuration")
    return answer


def _attributes(answer: Any) -> Attributes:
    if answer is None:
        return {}
    if not isinstance(answer, dict):
        raise CloudError(f"GetDeviceAttributes answered {answer!r}, not an object")
    return {str(key): _value(key, value) for key, value in answer.items()}


def _value(key: str, raw: Any) -> Any:
    if not isinstance(raw, Mapping) or len(raw) != 1:
        raise CloudError(f"GetDeviceAttributes: {key} is {raw!r}, not one of string, int, bool or version")
    try:
        value = attribute_from_api(raw)
        kind = attribute_kind(value)
    except TypeError as error:
        raise CloudError(f"GetDeviceAttributes: {key}: {error}") from error
    if kind not in raw:
        raise CloudError(f"GetDeviceAttributes: {key} is {raw!r}, the value is a {kind}")
    return value


CLOUD = Cloud("webhook", detect)
