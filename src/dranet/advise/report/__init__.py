"""Benchmark logs of users compared with what the hardware should reach: `dranet report`."""

from dranet.advise.report.expectation import AllocatedClaim
from dranet.advise.report.log_reader import Log, read_log
from dranet.advise.report.rendering import to_json, to_svg, to_text
from dranet.advise.report.runs import Run
from dranet.advise.report.verdict import Judged, judge

__all__ = ["AllocatedClaim", "Judged", "Log", "Run", "judge", "read_log", "to_json", "to_svg", "to_text"]
