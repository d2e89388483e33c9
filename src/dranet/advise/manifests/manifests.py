"""The objects of an input, indexed for every question: pods, claims, classes, slices, selectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dranet.advise.manifests.claims import Claim, Selector, empty_selectors, parse_claim, selectors_at
from dranet.advise.manifests.device_classes import known_classes
from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.recordings import RECORDING, listed_kinds
from dranet.advise.manifests.slices import SliceProblem, parse_slice
from dranet.advise.manifests.versions import to_v1
from dranet.advise.manifests.workload_kinds.base import ClaimSource, PodSet, Skipped
from dranet.advise.manifests.workload_kinds.nvidia import channel_template
from dranet.advise.manifests.workloads import Expanded, expand_workloads
from dranet.core.errors import InvalidInput, Problem
from dranet.core.untyped import as_dict, as_list

CLUSTER_FILE = "<cluster>"
"""The file name of objects that were read from a cluster."""


@dataclass(frozen=True, eq=False)
class Manifests:
    """All objects of an input."""

    objects: Sequence[Object]
    """The objects that the question is about."""
    existing: Sequence[Object] = ()
    """Objects that exist in the cluster: they are looked up, and never planned or linted themselves."""

    @cached_property
    def all_objects(self) -> tuple[Object, ...]:
        """Existing objects first, so that the objects of the question override them."""
        return (*self.existing, *self.objects)

    @cached_property
    def pods(self) -> list[PodSet]:
        """The pods of all workloads of the question."""
        return self._workloads.pods

    @cached_property
    def skipped(self) -> list[Skipped]:
        """Objects without pods, each with the reason."""
        return self._workloads.skipped

    @cached_property
    def services(self) -> list[dict[str, Any]]:
        """The Services of the input, and those that controllers create for the workloads of the question."""
        return [obj.data for obj in (*self.by_kind.get("Service", ()), *self._workloads.services)]

    @cached_property
    def _workloads(self) -> Expanded:
        return expand_workloads(self.objects, self.existing)

    @cached_property
    def claims(self) -> list[Claim]:
        """The claims and templates that the question is about."""
        return [claim for obj in self.objects if (claim := parse_claim(obj)) is not None]

    @cached_property
    def all_claims(self) -> list[Claim]:
        """All claims and templates: also existing ones, and those that controllers create."""
        made = [template for obj in self.all_objects if (template := channel_template(obj)) is not None]
        return [claim for obj in (*made, *self.existing) if (claim := parse_claim(obj)) is not None] + self.claims

    @cached_property
    def classes(self) -> dict[str, dict[str, Any]]:
        """Classes by name as v1: those of the input that a server accepts, and the known ones.

        With objects of a cluster the known ones are left out: all classes of a cluster are read.
        """
        found = [obj for obj in self.by_kind.get("DeviceClass", ()) if not empty_selectors(obj, ("spec",))]
        known = {} if self._read_from_cluster else known_classes()
        return known | {obj.name: to_v1(obj.data) for obj in found}

    @cached_property
    def _read_from_cluster(self) -> bool:
        return bool(self.by_kind.get(RECORDING)) or any(obj.file == CLUSTER_FILE for obj in self.all_objects)

    @cached_property
    def complete(self) -> bool:
        """Whether the input has all classes and claims of a cluster, so that a missing one does not exist.

        That holds for a cluster that was read, and for a recording with its nodes and classes. Otherwise a missing
        object is unknown: it may be in the cluster or in another file.
        """
        return self._read_from_cluster or {"Node", "DeviceClass"} <= self.by_kind.keys() or bool(self.recorded_kinds)

    @cached_property
    def recorded_kinds(self) -> frozenset[str]:
        """The kinds of which the input has all objects of a cluster, as its recording says; none without one."""
        return listed_kinds(self.by_kind.get(RECORDING, ()))

    def knows(self, kind: str) -> bool:
        """Whether an object of this kind that is not in the input does not exist."""
        return kind in self.recorded_kinds

    @cached_property
    def class_selectors(self) -> dict[str, tuple[str, ...]]:
        """By class name, the expressions of its selectors, in order."""
        raw = {name: as_list(as_dict(made.get("spec")).get("selectors")) for name, made in self.classes.items()}
        return {
            name: tuple(str(as_dict(as_dict(entry).get("cel")).get("expression", "")) for entry in entries)
            for name, entries in raw.items()
        }

    @cached_property
    def by_kind(self) -> dict[str, list[Object]]:
        """All objects by kind, existing ones first."""
        found: dict[str, list[Object]] = {}
        for obj in self.all_objects:
            found.setdefault(obj.kind, []).append(obj)
        return found

    @cached_property
    def controllers(self) -> dict[tuple[str, str, str], Object]:
        """ReplicaSets and StatefulSets by kind, namespace and name: the scheduler spreads the pods they select."""
        found = [*self.by_kind.get("ReplicaSet", ()), *self.by_kind.get("StatefulSet", ())]
        return {(obj.kind, obj.namespace, obj.name): obj for obj in found}

    @cached_property
    def slices(self) -> list[dict[str, Any]]:
        """ResourceSlices as v1, without those that are not usable."""
        return [raw for _, raw, problems in self._parsed_slices if not problems]

    def checked_slices(self) -> list[dict[str, Any]]:
        """ResourceSlices as v1; raises if one of them is not usable."""
        wrong = [(obj, path, text) for obj, _, problems in self._parsed_slices for path, text in problems]
        if wrong:
            raise InvalidInput([Problem(obj.position(path), text) for obj, path, text in wrong])
        return self.slices

    @cached_property
    def _parsed_slices(self) -> list[tuple[Object, dict[str, Any], list[SliceProblem]]]:
        # The API server checked the slices of a cluster: checking all values of a fleet again takes longer than a plan.
        return [
            (obj, obj.data, []) if obj.file == CLUSTER_FILE else (obj, *parse_slice(obj))
            for obj in self.by_kind.get("ResourceSlice", ())
        ]

    def claim_of(self, pods: PodSet, ref: ClaimSource) -> Claim | None:
        """The claim that pods refer to, if it is in the input."""
        named = ("ResourceClaimTemplate", ref.template) if ref.template else ("ResourceClaim", ref.claim)
        for kind, name in (("ResourceClaim", ref.generated), named) if ref.generated else (named,):
            found = self._claims_by_name.get((kind, name or "", pods.namespace))
            if found is not None:
                return found
        return None

    @cached_property
    def _claims_by_name(self) -> dict[tuple[str, str, str], Claim]:
        return {(c.owner.kind, c.owner.name, c.owner.namespace): c for c in self.all_claims}

    def claims_of(self, pods: PodSet) -> list[Claim]:
        """All claims of pods that are in the input."""
        return [claim for ref in pods.claims if (claim := self.claim_of(pods, ref)) is not None]

    @cached_property
    def selectors(self) -> list[Selector]:
        """Every selector of the question: those of classes first, then those of claims."""
        found = [s for obj in self.objects if obj.kind == "DeviceClass" for s in selectors_at(obj, ("spec",))]
        return found + [s for claim in self.claims for request in claim.requests for s in request.selectors]
