"""Carries out what ``agent.health.repairs`` decides: resets GPUs, verifies them, and keeps a journal of it."""
