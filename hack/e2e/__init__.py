"""``make e2e``: the passes of the end-to-end tier (``tier``), and what pytest tells of its failures (``plugin``)."""
