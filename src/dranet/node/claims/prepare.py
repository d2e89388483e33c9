"""Prepare and unprepare: the kubelet's calls, one claim at a time.

The kubelet waits 45 seconds and repeats a call until it succeeds, so both are idempotent: a prepared claim is answered
from its plan, and a running pod is not touched. Unprepare may come before the runtime's stop hook (force deletion) or
without any pod; it detaches whatever is still attached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Protocol

import msgspec

from dranet.core.errors import Busy, DranetError, InvalidInput, NotFound
from dranet.core.logs import get_logger, log_context
from dranet.core.names import ClaimRef, physical_function_name
from dranet.core.netconfig import NetworkConfig
from dranet.kubernetes.api.errors import Forbidden
from dranet.kubernetes.kubelet.handler import PreparedDevice
from dranet.node.claims.allocation import (
    AllocatedDevice,
    ClaimError,
    ClusterReader,
    Object,
    allocated_devices,
    claim_ref,
    container_variables,
    device_config,
    devices_of_other_drivers,
    named_by_containers,
    reserved_pods,
)
from dranet.node.claims.holders import DeviceHolders
from dranet.node.claims.leases import Leases
from dranet.node.claims.planner import DeviceRequest, Planner, config_for_share, new_device_plan
from dranet.node.claims.profiles import Profiles
from dranet.node.claims.recover import Published, Recorded, find_devices
from dranet.node.claims.shared_claims import next_pod, require_shareable
from dranet.node.claims.virtual_functions import VirtualFunctions, has_functions
from dranet.node.edits.container_edits import cdi_device_name
from dranet.node.faultpoints import reach
from dranet.node.inventory.snapshot import NetdevLocation, NodeDevice
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.records.plan import AttachMode, ClaimPlan, DevicePlan, PodRef, additional_uid
from dranet.node.store import Store

log = get_logger(__name__)

HOLDER_SECONDS = 20.0
"""How long prepare waits for another claim to release a device; the kubelet itself waits 45 seconds."""
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Where the claim controller writes the pod's own name for a claim that it created from a template."""


class DeviceInventory(Protocol):
    """What prepare needs from the inventory."""

    def find(self, name: str) -> NodeDevice | None: ...

    def skip_reason(self, name: str) -> str: ...

    async def rescan(self) -> None: ...


class Preparer:
    """Turns claims into plans, and releases them."""

    def __init__(
        self,
        *,
        node: str,
        store: Store,
        lifecycle: DeviceLifecycle,
        planner: Planner,
        cluster: ClusterReader,
        inventory: DeviceInventory,
        profiles: Profiles,
        leases: Leases,
        patience: float = HOLDER_SECONDS,
        trust_claims: bool = False,
    ) -> None:
        self.node = node
        self.store = store
        self.lifecycle = lifecycle
        self.planner = planner
        self.cluster = cluster
        self.inventory = inventory
        self.profiles = profiles
        self.leases = leases
        self._trust_claims = trust_claims
        self._functions = VirtualFunctions(lifecycle.host, store)
        self._holders = DeviceHolders(store, cluster, lifecycle.host.boot, patience)
        self._adding_pod = asyncio.Lock()
        """The kubelet's call and the pod's sandbox may both add the same pod at the same time."""
        self._released: dict[str, ClaimPlan] = {}
        """Released plans by UID, of which files and rows may be left."""

    async def prepare(self, ref: ClaimRef) -> list[PreparedDevice]:
        """Read the claim and prepare it."""
        return await self.prepare_claim(await self.read_claim(ref))

    async def read_claim(self, ref: ClaimRef) -> Object:
        """The claim as the API server has it now."""
        claim = await self.cluster.claim(ref.namespace, ref.name)
        uid = claim["metadata"]["uid"]
        if uid != ref.uid:
            raise ClaimError(f"claim {ref} was deleted and recreated (requested UID {ref.uid}, current UID {uid})")
        return claim

    async def prepare_claim(self, claim: Object) -> list[PreparedDevice]:
        """Plan the claim's devices and store the plan; `after_reply` does the rest."""
        ref, users = claim_ref(claim), reserved_pods(claim)
        if not users:
            return []
        devices = self._allocated(claim)
        await self._holders.release_stale_plans(ref, devices, self._release)
        await self._holders.wait_until_free(ref, devices)
        with self._holders.reserve(ref, devices):
            plan = self._current_plan(ref, users, devices)
            if plan is None:
                await self._release_all(ref)
                plan = await self._prepare(claim, self._new_plan(claim, users[0]), devices)
            for user in users:
                try:
                    await self.add_pod(claim, user)
                except (ClaimError, InvalidInput) as error:
                    # The kubelet calls once for all pods: the first one must start, the others get an event and wait.
                    with log_context(pod=user):
                        log.info("Pod cannot share the claim", error=error)
            return self._prepared_devices(plan)

    def _current_plan(
        self, ref: ClaimRef, users: Sequence[PodRef], devices: Sequence[AllocatedDevice]
    ) -> ClaimPlan | None:
        """The claim's plan, unless its pods are deleted, other devices were allocated, or the machine was rebooted.

        A reboot removes virtual functions and leases, and changes the numbers of character devices and interfaces.
        """
        plan = self.store.get(ref.uid)
        if plan is None or plan.boot != self.lifecycle.host.boot or not _is_current(plan, devices):
            return None
        return plan if self._pods_with_plan(plan) & {user.uid for user in users} else None

    def _pods_with_plan(self, first: ClaimPlan) -> set[str]:
        additional = self.store.additional_plans(first.uid)
        return {first.pod.uid, *(plan.pod.uid for plan in additional if not plan.is_unfinished_addition)}

    async def add_pod(self, claim: Object, user: PodRef) -> None:
        """Plan an additional pod of a prepared claim; raises where only one pod at a time can use it."""
        ref = claim_ref(claim)
        async with self._adding_pod:
            first = self.store.get(ref.uid)
            if first is None or user.uid in self._pods_with_plan(first):
                return
            require_shareable(first)
            plan = msgspec.structs.replace(self._new_plan(claim, user), uid=additional_uid(ref.uid, user.uid))
            await self._prepare(claim, plan, self._allocated(claim))
            await asyncio.to_thread(self.lifecycle.clear_container_edits, first)

    def _prepared_devices(self, plan: ClaimPlan) -> list[PreparedDevice]:
        """With the CDI name of the readiness gate, if the runtime sees it: no container of the claim starts before."""
        gate = (cdi_device_name(plan.uid),) if self.lifecycle.gates.visible_to_runtime else ()
        return [PreparedDevice((d.request,), d.pool, d.name, gate, d.share_id) for d in plan.devices]

    async def unprepare(self, ref: ClaimRef) -> ClaimPlan | None:
        """Detach the claim's devices, then release it. Matches by UID: a claim of the same name is another claim.

        Raises Busy while the claim's next pod starts: the kubelet would forget the claim for both pods.
        """
        reach("unprepare.begun")
        first = self.store.get(ref.uid)
        if first is not None and not first.pod_claim:  # a claim from a template has only one pod
            await asyncio.to_thread(self._detach, first)
            known = {first.pod.uid, *(plan.pod.uid for plan in self.store.additional_plans(ref.uid))}
            if (user := await next_pod(self.cluster, self.node, first, known)) is not None:
                raise Busy(f"pod {user} is starting and uses the claim next; keeping the claim prepared")
        if await self._release_all(ref) is None:
            await asyncio.to_thread(self.lifecycle.gates.remove, ref.uid)
        return first

    async def _release_all(self, ref: ClaimRef) -> ClaimPlan | None:
        """Release the plans of all pods of a claim."""
        first = self.store.get(ref.uid)
        # The first plan last: after a crash in between, the kubelet still finds it and calls unprepare again.
        for plan in (*self.store.additional_plans(ref.uid), *([first] if first else ())):
            await self._release(plan)
        return first

    async def recover(
        self,
        claim: Object,
        user: PodRef,
        namespaces: Iterable[str],
        published: Published,
        recorded: Recorded = MappingProxyType({}),
    ) -> bool:
        """Store a plan for a claim with devices in one of these namespaces; False where no namespace has any."""
        known = tuple(self.store.plans.values())
        found = await asyncio.to_thread(find_devices, self.planner, claim, namespaces, published, recorded, known)
        if found is None:
            return False
        plan = msgspec.structs.replace(self._new_plan(claim, user), netns=found.netns, attached=True)
        if self.store.get(plan.uid) is not None:  # another pod of the claim was recovered first
            plan = msgspec.structs.replace(plan, uid=additional_uid(plan.uid, user.uid))
        plan = await self._with_devices(claim, plan, found.devices)
        await asyncio.to_thread(self.store.put, plan)
        for reason in found.missing:
            log.error("Recovered claim without one of its devices", reason=reason)
        return True

    def _new_plan(self, claim: Object, user: PodRef) -> ClaimPlan:
        """A plan without devices."""
        ref = claim_ref(claim)
        return ClaimPlan(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            pod=user,
            boot=self.lifecycle.host.boot,
            pod_claim=(claim["metadata"].get("annotations") or {}).get(_POD_CLAIM_NAME, ""),
        )

    async def _with_devices(self, claim: Object, plan: ClaimPlan, devices: Sequence[DevicePlan]) -> ClaimPlan:
        """Reads the pod only where needed: to find the containers that get character devices, and the variables that
        containers set themselves."""
        plan = msgspec.structs.replace(plan, devices=tuple(devices), gpus=await self._gpus(claim, devices))
        pod = await self._pod(plan.pod) if plan.char_devices or plan.sets_environment else None
        if pod is None:
            return plan
        named = named_by_containers(pod, plan.name) if plan.char_devices else None
        own = container_variables(pod) if plan.sets_environment else ()
        return msgspec.structs.replace(plan, named=named, own_variables=own)

    async def _prepare(self, claim: Object, plan: ClaimPlan, devices: Sequence[AllocatedDevice]) -> ClaimPlan:
        try:
            plan = await self._with_functions(plan, devices)
            requests = [await self._request(claim, item) for item in devices]
            requests = await self._with_profiles(claim, plan, requests)
            plan = await asyncio.to_thread(self._plan_and_store, plan, requests)
            if _needs_lookup(plan):
                plan = await self._with_devices(claim, plan, await self.leases.obtain(plan.devices))
                await asyncio.to_thread(self._commit, plan)
        except BaseException:  # also when cancelled: the kubelet is gone, and leases and profiles must be released
            await self._release(self.store.get(plan.uid) or plan)
            raise
        return plan

    def _plan_and_store(self, plan: ClaimPlan, requests: Sequence[DeviceRequest]) -> ClaimPlan:
        """Both in one thread job, unless a server has to be asked in between: each job costs two wake-ups, which on a
        busy node take longer than planning."""
        plan = msgspec.structs.replace(plan, devices=tuple(self._plan_devices(plan, requests)))
        if not _needs_lookup(plan):
            self._commit(plan)
        return plan

    def _plan_devices(self, plan: ClaimPlan, requests: Sequence[DeviceRequest]) -> list[DevicePlan]:
        """Claims that share a NIC are planned one after the other, each stored before the next one reads the store.
        DHCP brings the NIC up on the host, so the host state is stored first there, too."""
        shared = any(request.mode is AttachMode.SHARED for request in requests)
        with self.lifecycle.lock_shared_parents() if shared else nullcontext():
            others = (*plan.devices, *self.store.devices_of_others(plan.uid))
            devices = self.planner.plan(requests, others=others)
            pairs = zip(devices, requests, strict=True)
            devices = [self.profiles.with_profile(device, request) for device, request in pairs]
            if any(device.pod_config and device.pod_config.dhcp for device in devices):
                self.store.put(msgspec.structs.replace(plan, devices=tuple(devices), provisional=True))
            elif shared:
                pending = tuple(msgspec.structs.replace(device, mode=AttachMode.PENDING) for device in devices)
                early = msgspec.structs.replace(plan, devices=pending, provisional=True)
                self.store.put(early, survives_reboot=False)
            return devices

    async def _with_functions(self, plan: ClaimPlan, devices: Sequence[AllocatedDevice]) -> ClaimPlan:
        """Create virtual functions when they are first claimed; the claim is stored before."""
        items = [item for item in devices if not item.admin and physical_function_name(item.device)]
        found = [(item, await self._find(item.device)) for item in items]
        functions = [(new_device_plan(item, AttachMode.PENDING, NetworkConfig(), seen), seen) for item, seen in found]
        if not functions:
            return plan
        plan = await asyncio.to_thread(self._functions.create, plan, functions)
        await self.inventory.rescan()
        return plan

    def _commit(self, plan: ClaimPlan) -> None:
        """Store the plan before any device changes, in case the driver crashes. Does not wait for the disk: after a
        reboot the machine sets up its NICs again, and the kubelet prepares the claims again. Leases and profiles are on
        disk since before they were requested."""
        reach("prepare.planned")
        self.store.put(plan, survives_reboot=False)
        reach("prepare.stored")
        if self.lifecycle.set_up_may_fail(plan):
            self.lifecycle.set_up(plan)

    async def after_reply(self, ref: ClaimRef) -> None:
        """The work of prepare and unprepare that the kubelet does not wait for; runs before the claim's next call."""
        released, self._released = tuple(self._released.values()), {}
        await asyncio.to_thread(self._after_reply, ref, released)

    def _after_reply(self, ref: ClaimRef, released: Sequence[ClaimPlan]) -> None:
        for plan in released:
            self._clean_up(plan)
        self.lifecycle.set_up_late(ref.uid)
        self.store.flush()

    async def _release(self, plan: ClaimPlan) -> None:
        """Detach the devices, release leases and profiles, and delete the plan."""
        self.leases.stop(plan)
        if any(device.lease or device.profile is not None for device in plan.devices):
            await asyncio.to_thread(self._detach, plan)
            await self.leases.release(plan)
            await self.profiles.release(plan)
            await asyncio.to_thread(self._delete, plan)
        elif not has_functions(plan) and self.lifecycle.try_release(plan):
            reach("unprepare.released")
        else:
            await asyncio.to_thread(self._detach_and_delete, plan)
        self._released[plan.uid] = plan

    def _clean_up(self, plan: ClaimPlan) -> None:
        reach("unprepare.answered")
        try:
            self.lifecycle.clean_up(plan)
            reach("unprepare.deleted")
        except (DranetError, OSError) as error:
            log.error("Could not remove all state of a released claim", claim=plan.ref, error=error)

    def _detach_and_delete(self, plan: ClaimPlan) -> None:
        self._detach(plan)
        self._delete(plan)

    def _detach(self, plan: ClaimPlan) -> None:
        self.lifecycle.detach(plan.uid, stopping="")
        reach("unprepare.detached")

    def _delete(self, plan: ClaimPlan) -> None:
        with self._functions.releasing(plan):
            self.lifecycle.release(plan)
        reach("unprepare.deleted")

    def _allocated(self, claim: Object) -> list[AllocatedDevice]:
        devices = allocated_devices(claim)
        foreign = sorted({item.pool for item in devices} - {self.node})
        if foreign:
            raise ClaimError(f"allocated from pool {', '.join(foreign)}, but this node's pool is {self.node}")
        return devices

    async def _request(self, claim: Object, item: AllocatedDevice) -> DeviceRequest:
        device = await self._find(item.device)
        own = device_config(claim, item, device.device.attributes, trust_author=self._trust_claims)
        config = await self.profiles.with_cloud_config(device, own)
        return DeviceRequest(item, device, config_for_share(item, device, config))

    async def _find(self, device: str) -> NodeDevice:
        """The device as last scanned; scans again where it is unknown or was just detached."""
        found = self.inventory.find(device)
        if found is None or found.netdev.location is NetdevLocation.OTHER_NETNS:
            await self.inventory.rescan()
            found = self.inventory.find(device)
        if found is None and (reason := self.inventory.skip_reason(device)):
            raise NotFound(f"device {device} is no longer published: {reason}")
        if found is None:
            raise NotFound(f"device {device} is no longer on this node")
        return found

    async def _pod(self, user: PodRef) -> Object | None:
        """The pod; None where it cannot be read, and then all its containers get the devices."""
        try:
            pod = await self.cluster.pod(user.namespace, user.name)
        except Forbidden:
            return None
        except DranetError as error:
            log.info("Could not read pod; all its containers get the devices", pod=user, error=error)
            return None
        return pod if pod is not None and pod["metadata"]["uid"] == user.uid else None

    async def _gpus(self, claim: Object, devices: Sequence[DevicePlan]) -> tuple[str, ...]:
        """The PCI addresses of the claim's devices of other drivers, for NCCL's topology file."""
        others = devices_of_other_drivers(claim)
        if not others or not any("nccl" in device.environment for device in devices):
            return ()
        try:
            return tuple(await self.cluster.pci_addresses(self.node, others))
        except DranetError as error:
            log.warning("Could not look up the claim's GPUs; containers get no NCCL topology file", error=error)
            return ()

    async def _with_profiles(
        self, claim: Object, plan: ClaimPlan, requests: Sequence[DeviceRequest]
    ) -> list[DeviceRequest]:
        with_profile = [request for request in requests if request.config.profile]
        if with_profile:
            devices = (*plan.devices, *(self.profiles.provisional_plan(request) for request in with_profile))
            early = msgspec.structs.replace(plan, devices=devices, provisional=True)
            await asyncio.to_thread(self.store.put, early)
        return [await self.profiles.resolve(claim, request) for request in requests]


def _needs_lookup(plan: ClaimPlan) -> bool:
    """Whether a DHCP server or the API server has to be asked before the plan is complete."""
    uses_dhcp = any(device.pod_config and device.pod_config.dhcp for device in plan.devices)
    return uses_dhcp or plan.sets_environment or bool(plan.char_devices)


def _is_current(plan: ClaimPlan, devices: Sequence[AllocatedDevice]) -> bool:
    planned = [(d.request, d.name, d.share_id) for d in plan.devices]
    allocated = [(item.request, item.device, item.share_id) for item in devices]
    return planned == allocated and not plan.provisional
