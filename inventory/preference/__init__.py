"""Which devices to hand out together: GetPreferredAllocation's answer."""
