"""New inputs out of old ones, by their shape. Pure: the same seed makes the same input."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from hack.fuzz.target import Shape

NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    99,
    2**31 - 1,
    2**31,
    -(2**31),
    2**53,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**40,
    0.5,
    1e308,
)
TEXTS: Final = (
    "",
    " ",
    "0",
    "-1",
    "9" * 60,
    "1e99",
    "1Ei",
    "0.000000001n",
    "true",
    "null",
    "~",
    "²",
    "٣",
    "\0",
    "\n",
    "\r\n",
    "\x1b[2J",
    "\u202e\u2066gpu",
    "\ufeff",
    "\U0001f600",
    "é",
    "../../etc/passwd",
    "/",
    "a/b",
    "a=b",
    ".",
    "..",
    "-",
    "$.x",
    "{}",
    "[]",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2024-02-30T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "a" * 253,
    "x" * 5000,
    "GPU-0",
    "GPU-0*6400",
    "gpu-memory",
    "1h30m",
    "-1s",
    "1e309",
    "NaN",
    "inf",
)
_CHANGES: Final = 4
_COIN: Final = 0.5

Json = Any


def mutated(data: bytes, seed: int, most: int, shape: Shape) -> bytes:
    """Another input of at most ``most`` bytes."""
    chance = random.Random(seed)
    if shape is Shape.JSON:
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            tree = None
        if tree is not None:
            # What grew too deep to be copied or written stays as it was.
            with suppress(RecursionError):
                for _ in range(chance.randint(1, _CHANGES)):
                    tree = _changed(tree, chance)
                return json.dumps(tree, ensure_ascii=chance.random() < _COIN).encode(errors="surrogatepass")[:most]
    return _text(data, chance)[:most]


def _changed(tree: Json, chance: random.Random) -> Json:
    places = list(_places(tree))
    if not places or chance.random() < 0.02:  # noqa: PLR2004 - seldom the whole
        return _value(chance, tree)
    holder, key = chance.choice(places)
    match chance.randrange(9):
        case 0:
            del holder[key]
        case 1 | 2 | 3:
            holder[key] = _value(chance, holder[key])
        case 4:
            other, where = chance.choice(places)
            holder[key] = _copy(other[where])
        case 5 if isinstance(holder, list):
            holder.insert(chance.randint(0, len(holder)), _copy(holder[key]))
        case 5:
            holder[chance.choice(TEXTS)] = _copy(holder[key])
        case 6 if isinstance(holder, dict):
            holder[_grafted(chance, key)] = holder.pop(key)
        case 7:
            other, where = chance.choice(places)
            holder[key], other[where] = _copy(other[where]), _copy(holder[key])
        case _:
            holder[key] = [holder[key]] if chance.random() < _COIN else {"": holder[key]}
    return tree


def _copy(tree: Json) -> Json:
    """Of JSON alone, which has no circles: a tenth of what ``copy.deepcopy`` takes."""
    if isinstance(tree, dict):
        return {key: _copy(value) for key, value in tree.items()}
    return [_copy(value) for value in tree] if isinstance(tree, list) else tree


def _places(tree: Json) -> Iterator[tuple[Any, Any]]:
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield from ((value, key) for key in list(value))
            stack += value.values()
        elif isinstance(value, list):
            yield from ((value, index) for index in range(len(value)))
            stack += value


def _value(chance: random.Random, old: Json) -> Json:
    match chance.randrange(8):
        case 0 | 1:
            return chance.choice(NUMBERS)
        case 2:
            return chance.choice((None, True, False, [], {}, [[]], {"": {}}))
        case 3 | 4 if isinstance(old, str):
            return _grafted(chance, old)
        case 5 if isinstance(old, int) and not isinstance(old, bool):
            return old + chance.choice((-1, 1, 10**6, -(10**6)))
    return chance.choice(TEXTS)


def _grafted(chance: random.Random, text: str) -> str:
    at, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
    return text[:at] + chance.choice(TEXTS) + text[end:]


def _text(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, _CHANGES)):
        at, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
        match chance.randrange(4):
            case 0:
                data = data[:at] + chance.choice(TEXTS).encode() + data[at:]
            case 1:
                data = data[:at] + chance.choice(TEXTS).encode() + data[min(end, at + 12) :]
            case 2:
                data = data[:at] + str(chance.choice(NUMBERS)).encode() + data[min(end, at + 8) :]
            case _:
                data = data[:end] + data[at:end] + data[end:]
    return data
