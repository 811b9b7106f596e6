"""The agent's listeners and what they serve: probes, metrics, and the report for people on the node."""
