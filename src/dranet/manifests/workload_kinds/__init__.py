"""One file a kind of workload; importing this package registers them all.

To add a kind: a file with a function under ``@workload(api group, kind)`` that yields its groups of pods, its import
here, and a line in tests/manifests/test_workload_kinds.py.
"""

from dranet.manifests.workload_kinds import (
    compute_domain,
    cron_job,
    daemon_set,
    job,
    job_set,
    kueue_workload,
    leader_worker_set,
    mpi_job,
    pod,
    ray,
    replica_set,
    stateful_set,
    train_job,
    training_job,
    volcano_job,
)
from dranet.manifests.workload_kinds.base import KINDS, Lookup, Omitted, PodGroup, group_of

__all__ = [
    "KINDS", "Lookup", "Omitted", "PodGroup", "group_of", "compute_domain", "cron_job", "daemon_set", "job", "job_set",
    "kueue_workload", "leader_worker_set", "mpi_job", "pod", "ray", "replica_set", "stateful_set", "train_job",
    "training_job", "volcano_job",
]  # fmt: skip
