"""A node to run the agent on, with short turns, as the agent's own tests have it."""

from tests.agent.conftest import lab, short_folder

__all__ = ["lab", "short_folder"]
