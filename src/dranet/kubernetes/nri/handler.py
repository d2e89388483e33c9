"""Subclass `Handler` and override the events you need. Only those are subscribed to.

Raise to reject: a rejected RunPodSandbox or CreateContainer fails the sandbox or container with the text of the
exception. Use CallError for an intended rejection; other exceptions are logged with their traceback. Events of one pod
arrive in order. The runtime waits for each response: after its request timeout it disconnects the plugin and continues
without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.kubernetes.nri.messages import (
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
from dranet.kubernetes.nri.request_context import RequestContext


class Handler:
    """All events, each with a method that does nothing."""

    async def configure(self, request: ConfigureRequest, context: RequestContext) -> None:
        """The runtime's name, version and timeouts, and the plugin's configuration."""

    async def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[Container], context: RequestContext
    ) -> Sequence[ContainerUpdate]:
        """All existing pods and containers, after every connect and before any event."""
        return ()

    async def shutdown(self, context: RequestContext) -> None:
        """The runtime is about to stop. The plugin will reconnect."""

    async def run_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """The pod's namespaces exist, but no container yet."""

    async def update_pod_sandbox(
        self, pod: PodSandbox, overhead: LinuxResources, resources: LinuxResources, context: RequestContext
    ) -> None: ...

    async def post_update_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None: ...

    async def stop_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """The pod's containers are stopped; its namespaces are about to be removed. May come more than once."""

    async def remove_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None: ...

    async def create_container(
        self, pod: PodSandbox, container: Container, context: RequestContext
    ) -> CreateContainerResponse:
        """The container is about to be created; return the adjustments."""
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
        """The adjustments of all plugins; return a reason to reject them."""
        return ValidateContainerAdjustmentResponse()
