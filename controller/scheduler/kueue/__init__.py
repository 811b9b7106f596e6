"""The scheduling cycle: nomination, ordering, decisions, the second pass, variants of one job."""
