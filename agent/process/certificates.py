"""Imports aiohttp without two tables that the agent never uses: every authority's certificate (``kube.leanaiohttp``),
and every file type's name.

File types (/etc/mime.types, 0.4 MiB where it exists) are for serving files.
"""

import mimetypes

import kube.leanaiohttp  # noqa: F401 - for what its import does

mimetypes.knownfiles = []
