"""CapacityRequests of manifests."""
