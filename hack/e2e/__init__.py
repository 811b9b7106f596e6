"""``make e2e``: the passes of the end-to-end tier (``tier``), and what pytest tells of its failures (``plugin``).

``make e2e-versions``: those of its scenes that older Kubernetes may change, and why (``versions``).
"""
