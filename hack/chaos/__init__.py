"""``python -m hack.chaos``: seeded faults on a real cluster under load, and invariants looked at from the outside.

Pure: ``faults`` (the kinds), ``schedule`` (what is done when), ``invariants`` (what may never be), ``minimise``. Shell:
``world`` (cluster, agent, controllers), ``load``, ``proxy``, the faults' hands, ``campaign``. See docs/chaos.md.
"""
