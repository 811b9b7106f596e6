"""Helpers for tests of this room's users: an API server that behaves, and a clock that is moved by hand."""

from kube.testing.clocks import VirtualClock, eventually
from kube.testing.server import FakeApiServer

__all__ = ["FakeApiServer", "VirtualClock", "eventually"]
