"""The page: a cluster's machines, pods and alignment, to look at.

`serve` watches a `Source` and answers a browser on this machine; `export` writes what it shows now into one file. Read
only: nothing here can change the cluster.
"""

from dranet.web.server import export, listen, serve, serving
from dranet.web.sources import LiveSource, RecordedSource, Source

__all__ = ["LiveSource", "RecordedSource", "Source", "export", "listen", "serve", "serving"]
