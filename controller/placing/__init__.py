"""Pods on their nodes and devices: ungating by topology assignment, device plans and what became of them."""
