"""The steps of a workload outside of scheduling cycles: checks, stops, time limits, back-offs."""
