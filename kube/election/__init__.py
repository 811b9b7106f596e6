"""Leader election over Leases."""
