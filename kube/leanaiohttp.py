"""Imports aiohttp without the certificates of all of the system's authorities, which it reads for a context of its own.

They cost 25 ms of CPU and some memory. Our clients make their own context: from the cluster's authority, or from the
system's where none is named. Once aiohttp is imported by others this changes nothing.
"""

import ssl

_load = ssl.SSLContext.load_default_certs
ssl.SSLContext.load_default_certs = lambda *_: None  # type: ignore[method-assign]
try:
    import aiohttp
finally:
    ssl.SSLContext.load_default_certs = _load  # type: ignore[method-assign]

__all__ = ["aiohttp"]
