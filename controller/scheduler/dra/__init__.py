"""Dynamic resource allocation: what ResourceClaims count as, and which devices they find on nodes."""
