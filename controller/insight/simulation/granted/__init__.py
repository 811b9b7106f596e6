"""CapacityRequests in virtual time, and the jobs inside of what they were granted."""
