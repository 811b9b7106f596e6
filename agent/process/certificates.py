"""Imports aiohttp without two tables that the agent never uses: every authority's certificate, every file type's name.

aiohttp makes a TLS context with all of the system's authorities when it is imported. The agent talks to one server, the
cluster's, and trusts the authority that its kubeconfig or service account names; where that is none, the
system's are read then (``kube.config``). Must be imported before aiohttp is; later it changes nothing.
The types of files (/etc/mime.types, 0.4 MiB where it is there) are for serving files.
"""

import mimetypes
import ssl

mimetypes.knownfiles = []
_load = ssl.SSLContext.load_default_certs
ssl.SSLContext.load_default_certs = lambda *_: None  # type: ignore[method-assign]
try:
    import aiohttp  # noqa: F401 - for what its import does
finally:
    ssl.SSLContext.load_default_certs = _load  # type: ignore[method-assign]
