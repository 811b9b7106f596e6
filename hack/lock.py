"""Resolve the packages anew and lock them with hashes, without index addresses: ``python -m hack.lock``."""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILE = ("--quiet", "--upgrade", "--generate-hashes", "--strip-extras", "--no-header", "--allow-unsafe")
NO_ADDRESSES = ("--no-emit-index-url", "--no-emit-find-links", "--no-emit-options")


def main() -> None:
    """Write run.txt (what the image installs), dev.txt (that and the tools) and fuzz.txt (that and atheris)."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-tools"], check=True)
        base = [f"{folder}/bin/pip-compile", *COMPILE, *NO_ADDRESSES]
        for name in ("run", "dev", "fuzz"):
            extra = () if name == "run" else (f"--extra={name}", "--constraint=requirements/run.txt")
            print(f"lock: requirements/{name}.txt", file=sys.stderr)
            subprocess.run(
                [*base, *extra, f"--output-file=requirements/{name}.txt", "pyproject.toml"], check=True, cwd=ROOT
            )


if __name__ == "__main__":
    main()
