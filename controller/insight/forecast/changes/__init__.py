"""The smallest changes that would admit a workload, and what one would have to change that never starts."""
