"""Manifests: YAML and JSON files as Kubernetes objects with positions, their claims, and the pods they create."""

from dranet.advise.manifests.claims import Claim, Request, Selector, empty_selectors, is_quantity
from dranet.advise.manifests.device_classes import (
    assumed_class,
    driver_attributes,
    known_class_facts,
    known_classes,
    meant_class,
    vendor_attributes,
)
from dranet.advise.manifests.manifests import CLUSTER_FILE, Manifests
from dranet.advise.manifests.objects import Located, Object, ReadProblem, SourceText, Span, locate_in
from dranet.advise.manifests.reading import (
    Fetched,
    ManifestFile,
    find_manifests,
    must_read,
    read_files,
    read_text,
    read_texts,
    read_usable,
)
from dranet.advise.manifests.recordings import (
    NEEDED_KINDS,
    RECORDING,
    recorded_version,
    recording_object,
    without_bookkeeping,
)
from dranet.advise.manifests.slices import parse_slice
from dranet.advise.manifests.versions import is_served, to_v1, version_of
from dranet.advise.manifests.workload_kinds import KINDS, PodSet, Skipped, group_of
from dranet.advise.manifests.workload_kinds.base import ClaimSource, Rollout, containers, gpu_limits, is_gpu_resource
from dranet.advise.manifests.workload_kinds.nvidia import COMPUTE_DOMAIN_DRIVER
from dranet.advise.manifests.workloads import pod_sets
from dranet.advise.manifests.yaml_nodes import FieldPath, Mark, dotted

__all__ = [
    "CLUSTER_FILE",
    "COMPUTE_DOMAIN_DRIVER",
    "KINDS",
    "NEEDED_KINDS",
    "RECORDING",
    "Claim",
    "ClaimSource",
    "Fetched",
    "FieldPath",
    "Located",
    "ManifestFile",
    "Manifests",
    "Mark",
    "Object",
    "PodSet",
    "ReadProblem",
    "Request",
    "Rollout",
    "Selector",
    "Skipped",
    "SourceText",
    "Span",
    "assumed_class",
    "containers",
    "dotted",
    "driver_attributes",
    "empty_selectors",
    "find_manifests",
    "gpu_limits",
    "group_of",
    "is_gpu_resource",
    "is_quantity",
    "is_served",
    "known_class_facts",
    "known_classes",
    "locate_in",
    "meant_class",
    "must_read",
    "parse_slice",
    "pod_sets",
    "read_files",
    "read_text",
    "read_texts",
    "read_usable",
    "recorded_version",
    "recording_object",
    "to_v1",
    "vendor_attributes",
    "version_of",
    "without_bookkeeping",
]
