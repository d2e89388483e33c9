"""Pods that are wanted together: which ones, how many at least, and in one place of which kind.

Read from what users write: PodGroups of scheduling.k8s.io (Kubernetes 1.36, behind gates) and of the schedulers that
had them before, Kueue's annotations of pod templates, and JobSet's exclusive placement. `gang_placing` places them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from dranet.manifests.claim_views import World
from dranet.manifests.objects import Object
from dranet.manifests.workload_kinds import group_of
from dranet.model.untyped import at, mappings, texts, whole
from dranet.predict.pods_to_place import Pod, PodClaim

KUBERNETES = "scheduling.k8s.io"
_OLDER = {"scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.volcano.sh", "scheduling.run.ai"}
"""PodGroups of coscheduling, Volcano and KAI: ``minMember``, and a label or annotation on the pods."""
_MEMBERSHIP = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group-name",
    "scheduling.k8s.io/group-name",
)
_KUEUE = "kueue.x-k8s.io/podset-"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
GATES = "needs the gates GenericWorkload and GangScheduling, off by default in 1.36 and 1.37"
TOPOLOGY_GATE = "its topology needs the gate TopologyAwareWorkloadScheduling"
CLAIMS_GATE = "its claims need the gate DRAWorkloadResourceClaims"


class Gang(msgspec.Struct, frozen=True):
    """Pods that belong together."""

    name: str
    """As users know it: ``PodGroup trainer``."""
    groups: tuple[tuple[Pod, ...], ...]
    """Each of these has to be in one place, if `key` names a kind of place."""
    minimum: int
    """Pods of all groups that have to fit at once; with fewer none starts."""
    key: str = ""
    """The label whose value is the place."""
    preferred: tuple[str, ...] = ()
    """Wider places that will do as well, from the nearest to the widest; the last resort is anywhere."""
    exclusive: bool = False
    """No two groups in one place."""
    anywhere: bool = False
    """Whether pods that find no place together may go anywhere."""
    note: str = ""
    by_scheduler: bool = False
    """kube-scheduler itself places it; else somebody before it chooses the place."""

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All of them."""
        return tuple(pod for group in self.groups for pod in group)


def gangs_of(world: World, pods: Sequence[Pod]) -> list[Gang]:
    """Every gang, in the order of its first pod."""
    found = [*_pod_groups(world, pods), *_kueue(world, pods), *_exclusive(world, pods)]
    order = {id(pod): i for i, pod in enumerate(pods)}
    return sorted(found, key=lambda gang: order[id(gang.pods[0])])


def with_group_claims(world: World, pods: Sequence[Pod]) -> list[Pod]:
    """Pods of a PodGroup whose claim is the group's own: equal entries in both make one claim for all of them."""
    groups = {(obj.namespace, obj.name): obj for obj in _objects(world, KUBERNETES, "PodGroup")}
    if not groups:
        return list(pods)
    return [_with_group_claims(pod, groups.get((pod.namespace, _group_name(pod)))) for pod in pods]


def _with_group_claims(pod: Pod, group: Object | None) -> Pod:
    if group is None:
        return pod
    own, shared = mappings(pod.spec.get("resourceClaims")), mappings(at(group.data, "spec", "resourceClaims"))
    common = {str(entry.get("name")) for entry in own if entry in shared and entry.get("resourceClaimTemplateName")}
    claims = tuple(_of_group(one, group.name) if one.ref in common else one for one in pod.claims)
    return replace(pod, claims=claims)


def _of_group(one: PodClaim, group: str) -> PodClaim:
    metadata = {**one.claim["metadata"], "name": f"{group}-{one.ref}"}
    return PodClaim(one.ref, {**one.claim, "metadata": metadata}, True)


def _pod_groups(world: World, pods: Sequence[Pod]) -> Iterator[Gang]:
    for obj in _objects(world, KUBERNETES, "PodGroup"):
        members = tuple(pod for pod in pods if pod.namespace == obj.namespace and _group_name(pod) == obj.name)
        gang = at(obj.data, "spec", "schedulingPolicy", "gang")
        if members:
            yield _kubernetes_gang(obj, members, whole(at(gang, "minCount"), 1) if gang is not None else 1)
    for obj in _objects(world, "", "PodGroup"):
        if group_of(obj) in _OLDER:
            members = tuple(pod for pod in pods if pod.namespace == obj.namespace and obj.name in _memberships(pod))
            if members:
                minimum = whole(at(obj.data, "spec", "minMember"), 1)
                yield Gang(f"PodGroup {obj.name}", (members,), minimum, note=f"a gang of {group_of(obj)}'s scheduler")


def _kubernetes_gang(obj: Object, members: tuple[Pod, ...], minimum: int) -> Gang:
    constraints = mappings(at(obj.data, "spec", "schedulingConstraints", "topology"))
    key = str(constraints[0].get("key") or "") if constraints else ""
    notes = [
        GATES,
        *([TOPOLOGY_GATE] if key else []),
        *([CLAIMS_GATE] if at(obj.data, "spec", "resourceClaims") else []),
    ]
    return Gang(f"PodGroup {obj.name}", (members,), minimum, key, note="; ".join(notes), by_scheduler=True)


def _group_name(pod: Pod) -> str:
    return str(at(pod.spec, "schedulingGroup", "podGroupName") or "")


def _memberships(pod: Pod) -> set[str]:
    return {found[name] for found in (pod.labels, pod.annotations) for name in _MEMBERSHIP if name in found}


def _kueue(world: World, pods: Sequence[Pod]) -> Iterator[Gang]:
    asked: dict[tuple[str, str, str], list[Pod]] = {}
    for pod in pods:
        for name in ("required-topology", "preferred-topology", "slice-required-topology"):
            if key := pod.annotations.get(f"{_KUEUE}{name}"):
                asked.setdefault((pod.workload, name, key), []).append(pod)
    for (workload, name, key), members in asked.items():
        wider = _wider(world, key) if name == "preferred-topology" else ()
        size = int(members[0].annotations.get(f"{_KUEUE}slice-size") or 0) if name.startswith("slice") else 0
        groups = _sliced(members, size) if size > 0 else (tuple(members),)
        note = "Kueue counts quota and places by CPU, memory and labels; it does not see which devices are taken"
        anywhere = name == "preferred-topology"
        yield Gang(f"{workload} (Kueue)", groups, len(members), key, wider, anywhere=anywhere, note=note)


def _sliced(members: Sequence[Pod], size: int) -> tuple[tuple[Pod, ...], ...]:
    return tuple(tuple(members[i : i + size]) for i in range(0, len(members), size))


def _wider(world: World, key: str) -> tuple[str, ...]:
    """Kueue climbs the levels of the Topology that has this one."""
    for obj in _objects(world, "kueue.x-k8s.io", "Topology"):
        labels = [str(level.get("nodeLabel")) for level in mappings(at(obj.data, "spec", "levels"))]
        if key in labels:
            return tuple(reversed(labels[: labels.index(key)]))
    return ()


def _exclusive(world: World, pods: Sequence[Pod]) -> Iterator[Gang]:
    """Every Job of the set in a place of its own: pods of a Job are called after it."""
    for obj in _objects(world, "jobset.x-k8s.io", "JobSet"):
        jobs: dict[str, dict[str, list[Pod]]] = {}
        for pod in pods:
            if pod.workload == f"JobSet/{obj.name}" and pod.namespace == obj.namespace:
                job = pod.name.rpartition("-")[0]
                if key := _exclusive_key(obj, job):
                    jobs.setdefault(key, {}).setdefault(job, []).append(pod)
        for key, by_job in jobs.items():
            groups = tuple(tuple(members) for members in by_job.values())
            yield Gang(f"JobSet {obj.name}", groups, 1, key, exclusive=True, note="one place for each Job alone")


def _exclusive_key(obj: Object, job: str) -> str:
    for one in mappings(at(obj.data, "spec", "replicatedJobs")):
        if job.rpartition("-")[0] == f"{obj.name}-{one.get('name')}":
            own = texts(at(one, "template", "metadata", "annotations")).get(_EXCLUSIVE)
            return own or texts(at(obj.data, "metadata", "annotations")).get(_EXCLUSIVE, "")
    return ""


def _objects(world: World, api_group: str, kind: str) -> Iterable[Object]:
    return [obj for obj in world.everything if obj.kind == kind and (not api_group or group_of(obj) == api_group)]
