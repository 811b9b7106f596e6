"""``tessera.page``: keys of the page's sign-in by an OIDC provider, and of the Prometheus that has its history."""

import string
from typing import Final
from urllib.parse import urlsplit

from controller.cluster.config.key import Key, key
from controller.cluster.config.pagesettings import CALLBACK
from controller.cluster.config.values import ANY_TEXT, NOT_EMPTY, choice, duration, matching
from yamlfile.parsers import HTTP_URL, PATH, Parser, Unfit

_OIDC: Final = "tessera.page.oidc"
_PROMETHEUS: Final = "tessera.page.prometheus"
_MOST_URL: Final = 500
_IN_HEADERS: Final = frozenset(string.digits + string.ascii_letters + string.punctuation) - frozenset('"<>\\^`{|}')


def _https_url(text: str) -> str:
    """An https URL without credentials, a query or a fragment: OpenID Connect Discovery 1.0, section 2. Raises
    Unfit.
    """
    url: str = HTTP_URL.convert(text)
    if not url.startswith("https://") or "@" in urlsplit(url).netloc or not _IN_HEADERS.issuperset(url):
        raise Unfit
    if len(url) > _MOST_URL:
        raise Unfit
    return url


def _callback_url(text: str) -> str:
    found = _https_url(text)
    if urlsplit(found).path != CALLBACK:
        raise Unfit
    return found


_HTTPS: Final = Parser(expected="https://HOST, without a user or a query", convert=_https_url, kinds=ANY_TEXT.kinds)
_CALLBACK: Final = Parser(expected=f"https://HOST{CALLBACK}", convert=_callback_url, kinds=ANY_TEXT.kinds)
_SCOPE: Final = matching(r"[!#-\[\]-~]+", "a scope: a word without blanks")

ALGORITHMS: Final = tuple(f"{family}{bits}" for family in ("RS", "ES", "PS") for bits in (256, 384, 512))
"""Signature algorithms with private keys, the API server's list. Neither ``none`` nor one with a shared secret is ever
accepted."""

PAGE: Final[tuple[Key, ...]] = (
    key(f"{_OIDC}.issuerURL", _HTTPS, "none: tokens alone", "the provider that signs people in; `--oidc-issuer-url`"),
    key(f"{_OIDC}.clientID", NOT_EMPTY, "", "the page's name at the provider; `--oidc-client-id`"),
    key(
        f"{_OIDC}.clientSecretFile",
        PATH,
        "none: a public client",
        "file with the secret of that client, read for each sign-in",
    ),
    key(
        f"{_OIDC}.redirectURL",
        _CALLBACK,
        "",
        "where browsers reach the page, as it is registered at the provider: they come back to it",
    ),
    key(f"{_OIDC}.scopes[]", _SCOPE, "none", "scopes that are asked for beside `openid`"),
    key(
        f"{_OIDC}.usernameClaim",
        NOT_EMPTY,
        "sub",
        "the claim that names the user; `--oidc-username-claim`",
    ),
    key(
        f"{_OIDC}.usernamePrefix",
        NOT_EMPTY,
        "the issuer and #; none for the claim email",
        'what stands before the name; "-": nothing; `--oidc-username-prefix`',
    ),
    key(f"{_OIDC}.groupsClaim", NOT_EMPTY, "none: no groups", "the claim that has groups; `--oidc-groups-claim`"),
    key(f"{_OIDC}.groupsPrefix", NOT_EMPTY, "none", "what stands before each group; `--oidc-groups-prefix`"),
    key(
        f"{_OIDC}.requiredClaims.*",
        ANY_TEXT,
        "none",
        "claims that an ID token must have with these values; `--oidc-required-claim`",
    ),
    key(
        f"{_OIDC}.signingAlgs[]",
        choice(*ALGORITHMS),
        "RS256",
        "how ID tokens may be signed; `--oidc-signing-algs`",
    ),
    key(
        f"{_OIDC}.caFile",
        PATH,
        "the system's",
        "file with the authorities of its certificate in PEM form; `--oidc-ca-file`",
    ),
    key(f"{_OIDC}.sessionLife", duration(least_s=60), "1h", "how long a sign-in lasts: 12h at most"),
    key(f"{_OIDC}.displayName", NOT_EMPTY, "your company's login", "what the button says: Sign in by NAME"),
    key(
        "tessera.page.history.folder",
        PATH,
        "none: nothing is recorded (chart: a volume of the replica's)",
        "where this replica records the past itself, while no Prometheus is configured",
    ),
    key(f"{_PROMETHEUS}.url", HTTP_URL, "none: no history", "the Prometheus that has the past and GPUs' figures"),
    key(
        f"{_PROMETHEUS}.bearerTokenFile",
        PATH,
        "none",
        "file with a bearer token for it, read for each question",
    ),
    key(
        f"{_PROMETHEUS}.caFile",
        PATH,
        "the system's",
        "file with the authorities of its certificate in PEM form, read for each question",
    ),
    key(
        f"{_PROMETHEUS}.timeout",
        duration(least_s=1),
        "10s",
        "how long it may take to answer: 20s at most",
    ),
)
