"""The process that serves the webhooks beside the one that decides: what both say to each other, and its bounds.

Any client may reach the webhooks' port. What such clients make this process do holds up no decision, and what the
deciding process does holds up no conversion.
"""
