"""What a plugin does: subclass `Handler` and override the events you want. Only those are subscribed to.

Raise to refuse: a refused RunPodSandbox or CreateContainer fails the sandbox or container with the text of the
exception. A CallError is a refusal on purpose; anything else is also logged with its traceback. Events of one pod come
in order; the runtime waits for each answer, so be quick: past its request time-out it disconnects the plugin and goes
on without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.nri.arrivals import RequestContext
from dranet.nri.messages import (
    ConfigureRequest,
    Container,
    ContainerUpdate,
    CreateContainerResponse,
    LinuxResources,
    PodSandbox,
    StopContainerResponse,
    UpdateContainerResponse,
    ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
)


class Handler:
    """Every event as a method that does nothing."""

    async def configure(self, request: ConfigureRequest, context: RequestContext) -> None:
        """The runtime introduces itself: its name, version, time-outs and our part of its configuration."""

    async def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[Container], context: RequestContext
    ) -> Sequence[ContainerUpdate]:
        """All that exists right now, after every (re)connection and before any event."""
        return ()

    async def shutdown(self, context: RequestContext) -> None:
        """The runtime is about to go. The plugin stays and will reconnect."""

    async def run_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """The pod's namespaces exist, no container yet."""

    async def update_pod_sandbox(
        self, pod: PodSandbox, overhead: LinuxResources, resources: LinuxResources, context: RequestContext
    ) -> None: ...

    async def post_update_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None: ...

    async def stop_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """The pod's containers are stopped; its namespaces are about to go. May come more than once."""

    async def remove_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None: ...

    async def create_container(
        self, pod: PodSandbox, container: Container, context: RequestContext
    ) -> CreateContainerResponse:
        """The container is about to be created; answer with what to change in it."""
        return CreateContainerResponse()

    async def post_create_container(self, pod: PodSandbox, container: Container, context: RequestContext) -> None: ...

    async def start_container(self, pod: PodSandbox, container: Container, context: RequestContext) -> None: ...

    async def post_start_container(self, pod: PodSandbox, container: Container, context: RequestContext) -> None: ...

    async def update_container(
        self, pod: PodSandbox, container: Container, resources: LinuxResources, context: RequestContext
    ) -> UpdateContainerResponse:
        return UpdateContainerResponse()

    async def post_update_container(self, pod: PodSandbox, container: Container, context: RequestContext) -> None: ...

    async def stop_container(
        self, pod: PodSandbox, container: Container, context: RequestContext
    ) -> StopContainerResponse:
        return StopContainerResponse()

    async def remove_container(self, pod: PodSandbox, container: Container, context: RequestContext) -> None: ...

    async def validate_container_adjustment(
        self, request: ValidateContainerAdjustmentRequest, context: RequestContext
    ) -> ValidateContainerAdjustmentResponse:
        """What all plugins together want to change; answer with a reason to reject it."""
        return ValidateContainerAdjustmentResponse()
