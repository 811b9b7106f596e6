"""The cookie of a browser: who is signed in, sealed so that replicas alone can read it. Pure.

The cookie holds a bearer token, which the API server reviews each time, or a user whose ID token was verified. The key
is derived from the authority in the port's own Secret: whoever has that could impersonate anybody at this port already.
"""

import os
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from controller.people.visibility.identity import User

COOKIE: Final = "__Host-tessera"
HERE: Final = "__Host-tessera-here"
"""The cookie that scripts may drop: without it COOKIE, which no script can read, signs nobody in. The page can so end a
session in its browser without a request to a server."""
SIGNING_IN: Final = "__Host-tessera-signing-in"
"""The cookie with what has to come back from an OIDC provider."""
LIFE_S: Final = 12 * 3600.0
_MOST: Final = 3_900
"""Bytes of a cookie's value: browsers take 4,096 with its name and attributes."""
_MOST_PLAIN: Final = 64 * 1024
_NONCE: Final = 12


S = TypeVar("S", bound=msgspec.Struct)


class TooLongError(ValueError):
    """The token does not fit into a cookie: one sentence."""


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The signed-in user: by ``token`` or as ``user``. ``expires_s``: seconds since 1970. ``here``: the value of the
    cookie HERE; a session that a former version sealed has none, and needs none.
    """

    expires_s: float
    token: str = ""
    user: User | None = None
    here: str = ""

    def __repr__(self) -> str:
        return f"Session(until {self.expires_s:.0f})"


class SigningIn(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser keeps while its user is at the provider. ``to``: the path to go on to afterwards."""

    expires_s: float
    state: str
    nonce: str
    verifier: str
    to: str


class Seal:
    """Encrypts cookies of one purpose. ``secret``: any text that only replicas know; values sealed with one of
    ``others`` open too. ``purpose``: a value sealed for one purpose opens for no other.
    """

    def __init__(self, secret: bytes, purpose: str, others: Sequence[bytes] = ()) -> None:
        self._ciphers = [AESGCM(_key(each, purpose)) for each in (secret, *others)]
        self._purpose = purpose.encode()

    def sealed(self, given: msgspec.Struct) -> str:
        """The sealed text of a struct. Raises TooLongError."""
        nonce = os.urandom(_NONCE)
        plain = zlib.compress(msgspec.json.encode(given), 9)
        text = urlsafe_b64encode(nonce + self._ciphers[0].encrypt(nonce, plain, self._purpose)).rstrip(b"=").decode()
        if len(text) > _MOST:
            raise TooLongError(f"the token is too long for a cookie: found {len(text)} bytes, expected at most {_MOST}")
        return text

    def session(self, text: str, now_s: float) -> Session | None:
        found = self._opened(text, Session)
        return found if found is not None and now_s < found.expires_s else None

    def signing_in(self, text: str, now_s: float) -> SigningIn | None:
        found = self._opened(text, SigningIn)
        return found if found is not None and now_s < found.expires_s else None

    def _opened(self, text: str, kind: type[S]) -> S | None:
        """The struct that the text holds; None if it was not sealed with one of the keys, for this purpose."""
        if not text or len(text) > _MOST or not text.isascii():
            return None
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            plain = self._decrypted(raw[:_NONCE], raw[_NONCE:])
            return msgspec.json.decode(zlib.decompressobj().decompress(plain, _MOST_PLAIN), type=kind)
        except (ValueError, InvalidTag, zlib.error, msgspec.MsgspecError):
            return None

    def _decrypted(self, nonce: bytes, sealed: bytes) -> bytes:
        """The plain bytes. Raises ValueError, and InvalidTag if no key fits."""
        for cipher in self._ciphers:
            with suppress(InvalidTag):
                return cipher.decrypt(nonce, sealed, self._purpose)
        raise InvalidTag


class Seals:
    """One ``Seal`` for each purpose, cached. The first secret seals, and all of them open. Made anew when ``secrets``
    changes.
    """

    def __init__(self, secrets: Callable[[], tuple[bytes, ...]]) -> None:
        self._secrets = secrets
        self._of: tuple[bytes, ...] = ()
        self._made: dict[str, Seal] = {}

    def of(self, purpose: str) -> Seal | None:
        """The seal of this purpose; None while there is no secret."""
        secrets = self._secrets()
        if not secrets:
            return None
        if secrets != self._of:
            self._of, self._made = secrets, {}
        if purpose not in self._made:
            self._made[purpose] = Seal(secrets[0], purpose, secrets[1:])
        return self._made[purpose]


def _key(secret: bytes, purpose: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=f"tessera page {purpose}".encode()).derive(secret)
