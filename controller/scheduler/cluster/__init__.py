"""The engine's view of the cluster: flavors, queues, holders of quota, and the workload that is being tried."""
