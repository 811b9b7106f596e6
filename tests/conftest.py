"""Property tests look anew at each run, but in CI at the same cases each time: a verdict there must be repeatable.

Nor does a verdict hang on how fast the machine is: no example has a deadline, and slow ones are no error.
"""

import os

from hypothesis import HealthCheck, settings

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("anew", UNTIMED)
settings.register_profile("ci", UNTIMED, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "anew")
