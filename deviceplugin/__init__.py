"""The kubelet's device plugin API: registration, ListAndWatch, GetPreferredAllocation, Allocate, CDI.

Answers come from memory: nothing in this room calls NVML or the API server, so a hung GPU delays no call.
"""
