"""Imports aiohttp without two tables that the agent never uses: every authority's certificate (``kube.leanaiohttp``),
every file type's name.

The types of files (/etc/mime.types, 0.4 MiB where it is there) are for serving files.
"""

import mimetypes

import kube.leanaiohttp  # noqa: F401 - for what its import does

mimetypes.knownfiles = []
