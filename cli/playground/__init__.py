"""``tessera try``: the controller and its page over a simulated fleet and queues that live, in one process.

    world.py           files -> what there is, and what comes when
    cluster.py         what Kubernetes does beside its API server: Jobs make pods, pods get nodes and GPUs. Pure
    agents_shell.py    what the nodes' agents say of their GPUs, by the agent's own code
    stage_shell.py     the API server (``kube.testing``), the controller, the page, and time
    command.py         the command
"""
