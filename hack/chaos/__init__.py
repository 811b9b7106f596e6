"""``python -m hack.chaos``: seeded faults on a real cluster under load, and invariants looked at from the outside.

Pure: ``faults`` (the kinds), ``schedule`` (what is done when, and its smallest part that still fails), ``invariants``
(what may never be). Shell: ``world`` (cluster, agent, controllers), ``load``, ``proxy``, the faults' hands,
``campaign``. See docs/chaos.md.
"""
