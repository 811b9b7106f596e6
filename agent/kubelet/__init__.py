"""The kubelet's pods and what containers get: pod resources, pods, device plans, device files, CDI specs."""
