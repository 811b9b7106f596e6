"""What a provider publishes and answers, parsed as hostile input: its discovery document, its keys, its tokens.
Pure.
"""

import hashlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import jwt
import msgspec

from controller.cluster.config.pagesettings import OidcProvider
from controller.people.page.session import SigningIn
from controller.people.signin.tokenclaims import TokenClaimsError

WELL_KNOWN: Final = "/.well-known/openid-configuration"
_MOST_KEYS: Final = 100
_MOST_TOKEN: Final = 64 * 1024
_OPENID: Final = "openid"


class ProviderError(Exception):
    """The provider cannot be used now: one line for the log and the person, without secrets."""


class UnknownKeyError(ProviderError):
    """The token is signed by none of the provider's keys that are known here."""


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The discovery document: OpenID Connect Discovery 1.0, section 3."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the token endpoint (RFC 6749, 5.1 and 5.2)."""

    id_token: str = ""
    error: str = ""

    def __repr__(self) -> str:
        return f"Answer(error={self.error!r})"


def endpoints(raw: bytes, issuer: str) -> Endpoints:
    """The endpoints in the discovery document. Raises ProviderError."""
    try:
        document = msgspec.json.decode(raw, type=Endpoints)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as wrong:
        raise ProviderError(f"{issuer}{WELL_KNOWN}: {_line(wrong)}") from None
    if document.issuer != issuer:
        raise ProviderError(f"{issuer}{WELL_KNOWN}: issuer: found {document.issuer[:200]!r}, expected {issuer!r}")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        url = getattr(document, name)
        try:
            parts = urlsplit(url)
            usable = parts.scheme == "https" and bool(parts.hostname) and not parts.fragment and url.isprintable()
        except ValueError:
            usable = False
        if not usable:
            raise ProviderError(f"{issuer}{WELL_KNOWN}: {name}: found {url[:200]!r}, expected https://HOST")
    return document


def keys(raw: bytes) -> tuple[jwt.PyJWK, ...]:
    """The signing keys of known kinds (RFC 7517); others are left out. Raises ProviderError."""
    try:
        listed = msgspec.json.decode(raw, type=dict[str, Any]).get("keys")
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as wrong:
        raise ProviderError(f"the provider's keys: {_line(wrong)}") from None
    if not isinstance(listed, list) or len(listed) > _MOST_KEYS:
        raise ProviderError(f"the provider's keys: expected a list of at most {_MOST_KEYS}")
    signing_keys = []
    for key in listed:
        if not isinstance(key, dict) or key.get("use", "sig") != "sig" or key.get("kty") not in ("RSA", "EC"):
            continue
        try:
            signing_keys.append(jwt.PyJWK.from_dict(key))
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
    return tuple(signing_keys)


def authorization(found: Endpoints, provider: OidcProvider, begun: SigningIn) -> str:
    """The URL to which the browser goes (OpenID Connect Core 1.0, 3.1.2.1; RFC 7636 with S256)."""
    digest = hashlib.sha256(begun.verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": provider.redirect_url,
        "scope": " ".join(dict.fromkeys((_OPENID, *provider.scopes))),
        "state": begun.state,
        "nonce": begun.nonce,
        "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    joint = "&" if urlsplit(found.authorization_endpoint).query else "?"
    return f"{found.authorization_endpoint}{joint}{urlencode(asked)}"


def exchange(
    found: Endpoints, provider: OidcProvider, secret: str | None, code: str, verifier: str
) -> tuple[dict[str, str], dict[str, str]]:
    """The form and the headers that change a code for tokens (RFC 6749, 2.3.1 and 4.1.3)."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": provider.redirect_url,
        "code_verifier": verifier,
    }
    methods = found.token_endpoint_auth_methods_supported
    if secret is None:
        return {**form, "client_id": provider.client_id}, {}
    if "client_secret_basic" not in methods and "client_secret_post" in methods:
        return {**form, "client_id": provider.client_id, "client_secret": secret}, {}
    pair = f"{quote_plus(provider.client_id)}:{quote_plus(secret)}"
    return form, {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def answer(raw: bytes, code: int) -> str:
    """The ID token in an answer of the token endpoint. Raises ProviderError."""
    try:
        reply = msgspec.json.decode(raw, type=Answer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as wrong:
        raise ProviderError(f"the token endpoint answered {code}: {_line(wrong)}") from None
    if not reply.id_token or len(reply.id_token) > _MOST_TOKEN or not reply.id_token.isascii():
        said = reply.error[:100] if reply.error.isprintable() else ""
        raise ProviderError(f"the token endpoint answered {code}: {said or 'no ID token'}")
    return reply.id_token


def verified(token: str, known: Sequence[jwt.PyJWK], algorithms: Sequence[str]) -> Mapping[str, Any]:
    """The claims of a token whose signature is the provider's; nothing else of them is checked yet. Raises
    TokenClaimsError, and UnknownKeyError where other keys may verify it.
    """
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenClaimsError("the ID token is no signed token") from None
    algorithm, named = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise TokenClaimsError(f"the ID token is signed by {str(algorithm)[:20]!r}, expected {', '.join(algorithms)}")
    fitting = [key for key in known if named is None or key.key_id == named]
    options: Any = {f"verify_{each}": False for each in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
    for key in fitting:
        try:
            return jwt.decode(token, key.key, algorithms=[algorithm], options=options)
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError, TypeError):
            # The key is of another kind, or another key without a name.
            continue
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenClaimsError("the ID token cannot be read") from None
    if named is None or not fitting:
        raise UnknownKeyError("no key of the provider's signed the ID token")
    raise TokenClaimsError("the ID token's signature is wrong")


def _line(wrong: Exception) -> str:
    return " ".join(str(wrong)[:200].split())
