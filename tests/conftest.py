"""Property tests look anew at each run, but in CI at the same cases each time: a verdict there must be repeatable."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
