"""Runs as `python -m kubebed` and, with nothing installed, as `python tests/cluster/kubebed`."""

import sys
from importlib import import_module
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# The package is called by the name it was started with: the folder can be copied into another project.
sys.exit(import_module(f"{__package__ or 'kubebed'}.cli").main())
