"""Documents that are queued of a manifest: replicas, gangs and parts of GPUs."""
