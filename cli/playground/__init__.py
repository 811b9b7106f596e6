"""``tessera try``: the controller and its page over a simulated fleet and queues that live, in one process.

``world`` has the objects and the events of a round, from files; ``cluster`` does Kubernetes' work beside its API
server; ``agents_shell`` publishes the nodes' GPUs, by the agent's own code; ``stage_shell`` has the API server
(``kube.testing``), the controller, the page, and time.
"""
