"""The page: what a browser is sent, for whom it is, and what its reader may see of the queues and the fleet.

The messages on the wire are described in ``docs/page-protocol.md``. Rows are made in ``fleetrows`` and ``queuerows``,
kept in ``table``, cut to what a reader may see in ``visiblenamespaces``, and sent by ``events_shell``.
"""
