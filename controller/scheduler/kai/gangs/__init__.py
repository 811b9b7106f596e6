"""Decisions by KAI's rules: gangs of tasks on nodes, in queues that share in proportion. Pure.

Source: the actions of KAI Scheduler. A ``GangSession`` is the state on which one cycle decides; every change of it
can be undone. The actions are ``allocate``, ``consolidation``, ``reclaim``, ``preempt`` and ``staleness``.
"""
