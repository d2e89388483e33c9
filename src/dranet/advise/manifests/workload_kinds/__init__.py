"""Workload kinds by subject; importing this package registers them all.

To add a kind, write a function under ``@workload(api group, kind)`` that yields its `PodSet` values, in the file of its
project, and add a line to tests/advise/manifests/test_workload_kinds.py. A new file also needs its import here.
"""

from dranet.advise.manifests.workload_kinds import builtin, clusters, jobset, kubeflow, nvidia, queues, ray, serving
from dranet.advise.manifests.workload_kinds.base import KINDS, FindObject, Made, MadeService, PodSet, Skipped, group_of

__all__ = [
    "KINDS", "FindObject", "Made", "MadeService", "PodSet", "Skipped", "builtin", "clusters", "group_of", "jobset",
    "kubeflow", "nvidia", "queues", "ray", "serving",
]  # fmt: skip
