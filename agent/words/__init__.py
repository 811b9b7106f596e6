"""Sentences that the agent says in Events, on the GpuNode and in claims: functions of their parameters."""
