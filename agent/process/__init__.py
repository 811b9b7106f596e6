"""The parts that any long-running process needs: log, clock, tasks, memory, programs of the host. Nothing here knows
GPUs.
"""
