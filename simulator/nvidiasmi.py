"""A stand-in for ``nvidia-smi`` where it resets GPUs, for a running simulation.

    nvidiasmi SOCKET --gpu-reset -i UUID[,UUID]     nvidiasmi SOCKET -pm 0|1 -i UUID[,UUID]

The answers are worded as the real program's. Exit codes: 0 done, 15 refused, 2 wrong words. It runs as a file of its
own, with the standard library alone.
"""

import json
import socket
import sys
import time
from typing import Any

REFUSED = 15
WRONG = 2
ANSWER_TIMEOUT_S = 10.0


def ask(path: str, order: dict[str, Any]) -> dict[str, Any]:
    """The answer to one order. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(json.dumps(order).encode() + b"\n")
        with connection.makefile() as answers:
            answer: dict[str, Any] = json.loads(answers.readline() or "{}")
            return answer


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main(words: list[str]) -> int:
    path, *rest = words
    uuids = rest[rest.index("-i") + 1].split(",") if "-i" in rest else []
    gpus = {gpu["uuid"]: gpu for gpu in ask(path, {"status": True})["status"]["gpus"]}
    for uuid in uuids:
        gpu = gpus.get(uuid)
        if gpu is None:
            say(f"No devices were found: {uuid}")
            return WRONG
        order: dict[str, Any] = {"gpu": gpu["index"]}
        if "-pm" in rest:
            order["persistence"] = rest[rest.index("-pm") + 1] == "1"
        elif "--gpu-reset" in rest:
            # The delay is here: the socket of the simulation answers one at a time.
            time.sleep(gpu["slow"].get("reset", 0.0))
            order["gpuReset"] = True
        else:
            say(f"Invalid combination of input arguments: {' '.join(rest)}")
            return WRONG
        refused = ask(path, order).get("error")
        if refused is not None:
            say(f"The following GPUs could not be reset:\n  {refused}")
            return REFUSED
    say("All done.")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except (OSError, ValueError, KeyError, IndexError) as failed:
        say(f"nvidia-smi: {type(failed).__name__}: {failed}")
        raise SystemExit(1) from None
