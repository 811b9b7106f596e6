"""The decisions: pure, synchronous, deterministic, their clock handed in."""
