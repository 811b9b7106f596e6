"""One small asynchronous client for the Kubernetes API, and the loops that every writer and watcher needs.

Objects go in and out as the caller's own msgspec structs, holding only the fields the caller reads; nothing here knows
what a GPU is. ``config`` says where the API server is, ``client`` speaks to it. To read: ``watch`` follows a kind,
``reflector`` keeps a copy of it. To write: ``latest`` writes the newest state of one object, ``writer`` many writes to
many objects, ``events`` tells people. ``lease`` says whether this process may act at all.
"""
