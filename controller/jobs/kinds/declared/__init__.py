"""Kinds of jobs that users declare: a JobKind object becomes a ``TemplatedKind``, without code.

    JobKind JSON -> spec.read -> rules.broken -> kind.DeclaredKind;  all of them -> accepting.accepted

Paths into objects are parsed by ``paths``, statuses are read by ``statustests``.
"""
