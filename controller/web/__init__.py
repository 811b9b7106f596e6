"""The page: what a browser is sent, who it is for, and what it may see of the queues and the fleet.

What is said on the wire stands in ``docs/page-protocol.md``. Rows are made in ``fleetrows`` and ``queuerows``, kept in
``table``, cut to what somebody may see in ``sight``, and sent by ``events_shell``.
"""
