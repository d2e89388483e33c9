"""Pods that must start together: which pods, the minimum number, and the topology domain they must share.

Gangs come from PodGroups of scheduling.k8s.io (Kubernetes 1.36, behind feature gates) and of other schedulers, from
Kueue's annotations on pod templates, and from JobSet's exclusive placement. `gang_placement` places them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests import Manifests, Object, group_of
from dranet.advise.plan.pending_pods import PendingPod, PodClaim
from dranet.core.untyped import as_dicts, as_int, as_strings, get_path

_KUBERNETES = "scheduling.k8s.io"
_OLDER = {"scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.volcano.sh", "scheduling.run.ai"}
"""PodGroups of coscheduling, Volcano and KAI: ``minMember``, and a label or annotation on the pods."""
_MEMBERSHIP = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group-name",
    "scheduling.k8s.io/group-name",
)
_KUEUE = "kueue.x-k8s.io/podset-"
_EXCLUSIVE_GROUP = "leaderworkerset.sigs.k8s.io/exclusive-topology"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
GATES = "needs the gates GenericWorkload and GangScheduling, off by default in 1.36 and 1.37"
_TOPOLOGY_GATE = "its topology needs the gate TopologyAwareWorkloadScheduling"
_CLAIMS_GATE = "its claims need the gate DRAWorkloadResourceClaims"


class Gang(msgspec.Struct, frozen=True):
    """Pods that must start together."""

    name: str
    """As users know it: ``PodGroup trainer``."""
    groups: tuple[tuple[PendingPod, ...], ...]
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
    """kube-scheduler itself places the gang; otherwise a queue chooses the place before."""

    @property
    def pods(self) -> tuple[PendingPod, ...]:
        """All of them."""
        return tuple(pod for group in self.groups for pod in group)


def gangs_of(manifests: Manifests, pods: Sequence[PendingPod]) -> list[Gang]:
    """Every gang, in the order of its first pod."""
    found = [
        *_pod_groups(manifests, pods),
        *_kueue(manifests, pods),
        *_exclusive(manifests, pods),
        *_exclusive_groups(manifests, pods),
    ]
    order = {id(pod): i for i, pod in enumerate(pods)}
    return sorted(found, key=lambda gang: order[id(gang.pods[0])])


def with_group_claims(manifests: Manifests, pods: Sequence[PendingPod]) -> list[PendingPod]:
    """Pods of a PodGroup whose claim is the group's own: equal entries in both make one claim for all of them."""
    groups = {(obj.namespace, obj.name): obj for obj in _objects(manifests, _KUBERNETES, "PodGroup")}
    if not groups:
        return list(pods)
    return [_with_group_claims(pod, groups.get((pod.namespace, _group_name(pod)))) for pod in pods]


def _with_group_claims(pod: PendingPod, group: Object | None) -> PendingPod:
    if group is None:
        return pod
    own, shared = as_dicts(pod.spec.get("resourceClaims")), as_dicts(get_path(group.data, "spec", "resourceClaims"))
    common = {str(entry.get("name")) for entry in own if entry in shared and entry.get("resourceClaimTemplateName")}
    claims = tuple(_of_group(one, group.name) if one.ref in common else one for one in pod.claims)
    return replace(pod, claims=claims)


def _of_group(one: PodClaim, group: str) -> PodClaim:
    metadata = {**one.claim["metadata"], "name": f"{group}-{one.ref}"}
    return PodClaim(one.ref, {**one.claim, "metadata": metadata}, True)


def _pod_groups(manifests: Manifests, pods: Sequence[PendingPod]) -> Iterator[Gang]:
    for obj in _objects(manifests, _KUBERNETES, "PodGroup"):
        members = tuple(pod for pod in pods if pod.namespace == obj.namespace and _group_name(pod) == obj.name)
        gang = get_path(obj.data, "spec", "schedulingPolicy", "gang")
        if members:
            yield _kubernetes_gang(obj, members, as_int(get_path(gang, "minCount"), 1) if gang is not None else 1)
    for obj in _objects(manifests, "", "PodGroup"):
        if group_of(obj) in _OLDER:
            members = tuple(pod for pod in pods if pod.namespace == obj.namespace and obj.name in _memberships(pod))
            if members:
                minimum = as_int(get_path(obj.data, "spec", "minMember"), 1)
                yield Gang(f"PodGroup {obj.name}", (members,), minimum, note=f"a gang of {group_of(obj)}'s scheduler")


def _kubernetes_gang(obj: Object, members: tuple[PendingPod, ...], minimum: int) -> Gang:
    constraints = as_dicts(get_path(obj.data, "spec", "schedulingConstraints", "topology"))
    key = str(constraints[0].get("key") or "") if constraints else ""
    notes = [
        GATES,
        *([_TOPOLOGY_GATE] if key else []),
        *([_CLAIMS_GATE] if get_path(obj.data, "spec", "resourceClaims") else []),
    ]
    return Gang(f"PodGroup {obj.name}", (members,), minimum, key, note="; ".join(notes), by_scheduler=True)


def _group_name(pod: PendingPod) -> str:
    return str(get_path(pod.spec, "schedulingGroup", "podGroupName") or "")


def _memberships(pod: PendingPod) -> set[str]:
    return {found[name] for found in (pod.labels, pod.annotations) for name in _MEMBERSHIP if name in found}


def _kueue(manifests: Manifests, pods: Sequence[PendingPod]) -> Iterator[Gang]:
    asked: dict[tuple[str, str, str, str], list[PendingPod]] = {}
    for pod in pods:
        for name in ("required-topology", "preferred-topology", "slice-required-topology"):
            if key := pod.annotations.get(f"{_KUEUE}{name}"):
                asked.setdefault((pod.namespace, pod.workload, name, key), []).append(pod)
    for (_, workload, name, key), members in asked.items():
        wider = _wider(manifests, key) if name == "preferred-topology" else ()
        size = int(members[0].annotations.get(f"{_KUEUE}slice-size") or 0) if name.startswith("slice") else 0
        groups = _sliced(members, size) if size > 0 else (tuple(members),)
        note = "Kueue counts quota and places by CPU, memory and labels; it does not see which devices are taken"
        anywhere = name == "preferred-topology"
        yield Gang(f"{workload} (Kueue)", groups, len(members), key, wider, anywhere=anywhere, note=note)


def _sliced(members: Sequence[PendingPod], size: int) -> tuple[tuple[PendingPod, ...], ...]:
    return tuple(tuple(members[i : i + size]) for i in range(0, len(members), size))


def _wider(manifests: Manifests, key: str) -> tuple[str, ...]:
    """Kueue climbs the levels of the Topology that has this one."""
    for obj in _objects(manifests, "kueue.x-k8s.io", "Topology"):
        labels = [str(level.get("nodeLabel")) for level in as_dicts(get_path(obj.data, "spec", "levels"))]
        if key in labels:
            return tuple(reversed(labels[: labels.index(key)]))
    return ()


def _exclusive(manifests: Manifests, pods: Sequence[PendingPod]) -> Iterator[Gang]:
    """Every Job of the set in a place of its own: pods of a Job are called after it."""
    for obj in _objects(manifests, "jobset.x-k8s.io", "JobSet"):
        jobs: dict[str, dict[str, list[PendingPod]]] = {}
        for pod in pods:
            if pod.workload == f"JobSet/{obj.name}" and pod.namespace == obj.namespace:
                job = pod.name.rpartition("-")[0]
                if key := _exclusive_key(obj, job):
                    jobs.setdefault(key, {}).setdefault(job, []).append(pod)
        for key, by_job in jobs.items():
            groups = tuple(tuple(members) for members in by_job.values())
            yield Gang(f"JobSet {obj.name}", groups, 1, key, exclusive=True, note="one place for each Job alone")


def _exclusive_groups(manifests: Manifests, pods: Sequence[PendingPod]) -> Iterator[Gang]:
    """Every group of a LeaderWorkerSet in a place of its own."""
    for obj in _objects(manifests, "leaderworkerset.x-k8s.io", "LeaderWorkerSet"):
        key = as_strings(get_path(obj.data, "metadata", "annotations")).get(_EXCLUSIVE_GROUP, "")
        groups: dict[str, list[PendingPod]] = {}
        for pod in pods:
            if key and pod.workload == f"LeaderWorkerSet/{obj.name}" and pod.namespace == obj.namespace:
                groups.setdefault(pod.part, []).append(pod)
        if groups:
            together = tuple(tuple(members) for members in groups.values())
            name = f"LeaderWorkerSet {obj.name}"
            yield Gang(name, together, 1, key, exclusive=True, note="one place for each group alone")


def _exclusive_key(obj: Object, job: str) -> str:
    for one in as_dicts(get_path(obj.data, "spec", "replicatedJobs")):
        if job.rpartition("-")[0] == f"{obj.name}-{one.get('name')}":
            own = as_strings(get_path(one, "template", "metadata", "annotations")).get(_EXCLUSIVE)
            return own or as_strings(get_path(obj.data, "metadata", "annotations")).get(_EXCLUSIVE, "")
    return ""


def _objects(manifests: Manifests, api_group: str, kind: str) -> Iterable[Object]:
    return [obj for obj in manifests.all_objects if obj.kind == kind and (not api_group or group_of(obj) == api_group)]
