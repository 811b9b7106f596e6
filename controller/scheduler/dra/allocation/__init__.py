"""ResourceClaims in placement: what nodes' ResourceSlices can still give, and what is planned for pods to come."""
