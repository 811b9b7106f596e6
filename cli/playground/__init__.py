"""``tessera try``: the controller and its page over a simulated fleet and queues that live, in one process.

``world`` is what there is and what comes when, from files; ``cluster`` what Kubernetes does beside its API server;
``agents_shell`` what the nodes' agents say of their GPUs, by the agent's own code; ``stage_shell`` the API server
(``kube.testing``), the controller, the page, and time.
"""
