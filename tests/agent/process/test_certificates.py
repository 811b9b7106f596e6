"""The agent holds no certificates that it does not use, and loses none that it does."""

import subprocess
import sys

LOOK = """
import ssl, sys
{first}
import aiohttp
from aiohttp import connector
print(len(connector._SSL_CONTEXT_VERIFIED.get_ca_certs()), ssl.create_default_context().cert_store_stats()["x509_ca"])
"""


def counted(first: str) -> tuple[int, int]:
    """Certificates in aiohttp's own context, and in one that is made later."""
    done = subprocess.run([sys.executable, "-c", LOOK.format(first=first)], capture_output=True, text=True, check=True)
    held, later = done.stdout.split()
    return int(held), int(later)


def test_the_systems_authorities_are_read_by_who_asks_for_them_alone() -> None:
    held, later = counted("import agent.serving.endpoints; agent.serving.endpoints._handlers(None, ())")
    assert held == 0
    assert later == counted("")[1]
