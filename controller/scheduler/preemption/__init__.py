"""Preemption: which workloads are evicted so that a pending one fits, by which policy, in which order.

``Preemption.targets`` -> ``VictimSearch`` (what is contested, for which workload) -> ``Classical`` or ``Fair``
-> ``Walker`` over the index of holders -> trials with ``NeededCapacity`` -> ``Target``s.
"""
