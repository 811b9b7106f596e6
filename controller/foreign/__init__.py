"""Volcano's and KAI's objects and jobs: read, answered and mirrored."""
