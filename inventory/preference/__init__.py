"""The choice of devices that fit together: GetPreferredAllocation's answer."""
