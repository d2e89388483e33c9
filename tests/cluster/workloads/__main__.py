"""`python tests/cluster/workloads up`: a bed that stays up, with all that jobs need (`make cluster WORKLOADS=1`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.cluster.kubebed import BedError, Cluster, Options
from tests.cluster.kubebed.cache import say
from tests.cluster.kubebed.layout import Layout
from tests.cluster.kubebed.parts import kubectl
from tests.cluster.workloads.ready import ready_for_jobs


def main() -> int:
    """Bring it up; prints the path of its kubeconfig."""
    bed = Cluster(Layout.from_environment(), Options.from_environment())
    try:
        bed.up(keep=True)
        ready_for_jobs(bed)
    except BedError as problem:
        print(f"workloads: {problem}", file=sys.stderr)
        return 2
    print(bed.layout.kubeconfig)
    say(f"use it: export KUBECONFIG={bed.layout.kubeconfig} PATH={kubectl().parent}:$PATH")
    return 0


if __name__ == "__main__":
    sys.exit(main())
