"""How generated inputs are judged: by the answers they get, never by the time that takes on a busy machine.

They are the same in every run, so that a run tells of the change it is for; `--hypothesis-profile=new-inputs` tries
others.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("new-inputs", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same-inputs", settings.get_profile("new-inputs"), derandomize=True)
settings.load_profile("same-inputs")
