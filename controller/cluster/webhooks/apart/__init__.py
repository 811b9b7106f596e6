"""The process that serves the webhooks beside the process that decides: the messages between them, and its bounds.

Any client may reach the webhooks' port. The load of such clients delays no decision, and the load of decisions delays
no conversion.
"""
