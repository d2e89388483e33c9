"""Which cloud and profile providers this node uses, from its flags."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

import msgspec

from dranet.driver.claims.profiles import Profiles
from dranet.driver.serving.options import Options
from dranet.inventory.cloud import CloudProvider, ProfileProvider, check_options, find_provider
from dranet.inventory.cloud.webhook import connect
from dranet.inventory.machine import cloud_context
from dranet.kernel.sysfs import Sysfs
from dranet.model.errors import InvalidInput

log = logging.getLogger(__name__)


class Providers(msgspec.Struct, frozen=True):
    """What was found, with what went wrong on the way."""

    cloud: CloudProvider | None
    profiles: Profiles
    problems: tuple[str, ...] = ()


Labels = Callable[[], Awaitable[Mapping[str, str]]]
Lent = Callable[[], Collection[str]]


async def find_providers(settings: Options, sysfs: Sysfs, labels: Labels, lent: Lent) -> Providers:
    """Detect the cloud, connect the webhook. A cloud that fails costs its attributes; a profile webhook is needed."""
    options, hint = settings.cloud_provider_options, settings.cloud_provider_hint
    try:
        check_options(options, hint)
    except InvalidInput as error:
        raise InvalidInput(f"--cloud-provider-options: {error}") from error
    context = cloud_context(sysfs, settings.webhook_url, node_labels=labels, lent=lent, options=options)
    found = await find_provider(context, hint)
    for problem in found.problems:
        log.warning("%s", problem)
    if found.provider is not None:
        log.info("cloud provider: %s", found.provider.name)
    profiles = await _profile_provider(settings, found.provider)
    return Providers(found.provider, Profiles(found.provider, profiles), found.problems)


async def _profile_provider(settings: Options, cloud: CloudProvider | None) -> ProfileProvider | None:
    if settings.profile_provider == "none":
        return None
    if settings.profile_provider == "cloud":
        return cloud if isinstance(cloud, ProfileProvider) else None
    webhook = await connect(settings.webhook_url)
    if not webhook.profiles:
        raise InvalidInput(f"--profile-provider=webhook: {settings.webhook_url} does not offer profiles")
    return webhook
