"""The ways from a command to the cluster: the API server, the controller, the agent of this machine, or none."""
