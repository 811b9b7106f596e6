"""What of the node is given out by claim: devices, counters and taints, and the ResourceSlices that say so."""
