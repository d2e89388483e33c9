"""Runs as `python -m kubebed` and, with nothing installed, as `python tests/cluster/kubebed`."""

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kubebed.cli import main

sys.exit(main())
