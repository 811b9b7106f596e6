"""``make nightly``: what shows more than CI has time for, in parts of an hour at most.

``parts`` is the table, ``running`` runs one part within its limit, ``page`` keeps the results in docs/nightly.md, and
``busy`` runs a command beside busy loops.
"""
