"""`dranet demo --web`: the sandbox's cluster in the browser while a scenario runs."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request

import pytest

from dranet.testing.isolation import IsolationError, isolation_command


def test_page_shows_the_scenario_while_it_runs() -> None:
    try:
        isolation_command()
    except IsolationError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "dranet", "demo", "mpi", "--web", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        seen = ""
        while process.poll() is None and not re.search(r"(ultra|high)gpu-8g-0", seen):
            try:
                with urllib.request.urlopen(f"{found[0]}events", timeout=2) as answer:
                    seen += answer.read1(200_000).decode(errors="replace")
            except OSError:
                time.sleep(0.1)
        process.communicate(timeout=90)
    assert process.returncode == 0
    assert re.search(r"(ultra|high)gpu-8g-0", seen)
