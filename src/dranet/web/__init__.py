"""The web page: the machines of a cluster, their pods, and the alignment of devices.

`serve` watches a `Source` and serves a browser on this machine; `export` writes the present state into one file. The
page is read-only.
"""

from dranet.web.server import export, listen, serve, serving
from dranet.web.sources import LiveSource, RecordedSource, Source

__all__ = ["LiveSource", "RecordedSource", "Source", "export", "listen", "serve", "serving"]
