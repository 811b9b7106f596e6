"""The devices that the node gives out by claim: with counters and taints, in ResourceSlices."""
