"""Pods on their nodes and devices: ungating by topology assignment, device plans and their results."""
