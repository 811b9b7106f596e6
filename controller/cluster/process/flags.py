"""The command line of ``tessera-controller``. Each flag has an environment variable ``TESSERA_<FLAG>``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from msgspec import Struct

from controller.cluster.config.settings import Address

PROGRAM: Final = "tessera-controller"
VERSION: Final = "0.2.0"

_HELP: Final = """\
usage: tessera-controller [--config FILE] [--kubeconfig FILE] [--metrics-address A:P] [--web-address A:P]
                          [--leader-elect | --no-leader-elect] [--only core] [--namespace NAME] [--identity NAME]
                          [--log-level LEVEL] [--remove-finalizers | --check-installation] [--version] [--help]

  --config FILE            Kueue's Configuration file (config.kueue.x-k8s.io), or one with our own block `tessera:`
  --kubeconfig FILE        the API server; default: the pod's own service account
  --metrics-address A:P    metrics and probes (default: the file's, else 0.0.0.0:8080; 0 for none)
  --web-address A:P        answers for users, by TLS (default 0.0.0.0:8082; 0 for none)
  --[no-]leader-elect      act only while holding the lease (default: the file's, else yes)
  --only core              workloads and queues alone: no jobs, no web part, no webhooks
  --namespace NAME         the controller's own namespace (default: the service account's, else tessera-system)
  --identity NAME          who holds the lease (default: the host's name and a random part)
  --log-level LEVEL        debug, info, warning or error (default info)
  --remove-finalizers      take our finalizer off all objects, and end: when the controller is uninstalled
  --check-installation     ask as `helm test` does whether a replica leads, agents have told of their GPUs and queues
                           are answered, and end; 1 with a line for each that is not so

Each flag has an environment variable: TESSERA_CONFIG, TESSERA_METRICS_ADDRESS, TESSERA_LEADER_ELECT=false ...
Exit codes: 0 stopped as asked, 1 could not go on, 2 a wrong flag or configuration.
"""
_NAMED: Final = ("config", "kubeconfig", "metrics-address", "web-address", "only", "namespace", "identity", "log-level")
_ENDING: Final = ("remove-finalizers", "check-installation")
"""Flags without a value: the program does this one thing, and ends."""
_LEVELS: Final = ("debug", "info", "warning", "error")
_MAX_PORT: Final = 65535


class UsageError(Exception):
    """A wrong flag, in one line: the flag, what was found, what was expected."""


class TextRequested(Exception):  # noqa: N818 - not an error: the text is to be printed
    """The text of ``--help`` or ``--version`` is to be printed."""


class Flags(Struct, frozen=True, kw_only=True):
    """The flags. ``metrics``, ``leader_elect``: None if the flag is absent. An address of None inside the tuple serves
    none.
    """

    config: Path | None = None
    kubeconfig: str | None = None
    metrics: tuple[Address | None] | None = None
    web: Address | None = Address("0.0.0.0", 8082)  # noqa: S104 - the API server reaches it through a Service
    leader_elect: bool | None = None
    core_only: bool = False
    namespace: str | None = None
    identity: str | None = None
    log_level: str = "info"
    remove_finalizers: bool = False
    check_installation: bool = False


def parse(argv: Sequence[str], env: Mapping[str, str]) -> Flags:
    """The flags in a command line and environment. ``argv`` is without the program's name. Raises UsageError,
    TextRequested.
    """
    values = _from_environment(env)
    words = list(argv)
    while words:
        _take(words, values)
    return _typed(values)


def _from_environment(env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The flags in environment variables: flag to (value, the name for messages)."""
    values = {}
    for name in (*_NAMED, "leader-elect", *_ENDING):
        variable = "TESSERA_" + name.upper().replace("-", "_")
        if env.get(variable):
            values[name] = (env[variable], variable)
    return values


def _take(words: list[str], given: dict[str, tuple[str, str]]) -> None:
    word = words.pop(0)
    if word in ("-h", "--help"):
        raise TextRequested(_HELP)
    if word == "--version":
        raise TextRequested(f"{PROGRAM} {VERSION}\n")
    flag, equals, value = word.partition("=")
    name = flag.removeprefix("--")
    if flag.startswith("--") and name == "no-leader-elect" and not equals:
        given["leader-elect"] = ("false", flag)
    elif name in _ENDING and not equals:
        given[name] = ("true", flag)
    elif flag.startswith("--") and name == "leader-elect":
        given[name] = (value if equals else "true", flag)
    elif flag.startswith("--") and name in _NAMED:
        if not equals:
            if not words:
                raise UsageError(f"{flag}: found nothing, expected a value")
            value = words.pop(0)
        given[name] = (value, flag)
    else:
        raise UsageError(f"{word!r}: no such flag (--help lists them)")


def _typed(given: Mapping[str, tuple[str, str]]) -> Flags:
    settings: dict[str, object] = {}
    for name, (value, called) in given.items():
        match name:
            case "config":
                settings["config"] = Path(value)
            case "metrics-address":
                settings["metrics"] = (address(value, called),)
            case "web-address":
                settings["web"] = address(value, called)
            case "leader-elect":
                settings["leader_elect"] = _boolean(value, called)
            case "remove-finalizers" | "check-installation":
                settings[name.replace("-", "_")] = _boolean(value, called)
            case "only":
                _one_of(value, ("core",), called)
                settings["core_only"] = True
            case "log-level":
                settings["log_level"] = _one_of(value.lower(), _LEVELS, called)
            case _:
                settings[name] = value
    return Flags(**settings)  # type: ignore[arg-type]


def address(value: str, called: str) -> Address | None:
    """The address in ``HOST:PORT`` or ``:PORT``; None for ``0``. Raises UsageError."""
    if value == "0":
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        _refuse(called, value, "HOST:PORT, :PORT or 0 for none")
    return Address(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))  # noqa: S104 - as everywhere


def _boolean(value: str, called: str) -> bool:
    if value not in ("true", "false"):
        _refuse(called, value, "true or false")
    return value == "true"


def _one_of(value: str, words: tuple[str, ...], called: str) -> str:
    if value not in words:
        _refuse(called, value, " or ".join(words))
    return value


def _refuse(called: str, value: str, expected: str) -> NoReturn:
    raise UsageError(f"{called}: found {value!r}, expected {expected}")
