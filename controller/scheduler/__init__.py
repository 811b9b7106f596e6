"""The scheduling decisions: pure, synchronous, deterministic; the time is an argument."""
