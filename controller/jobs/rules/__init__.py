"""Rules about jobs as objects: what may be created and how it may change, whatever the state of the cluster. Pure."""
