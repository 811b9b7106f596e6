"""Write the tables of the migration pages; with ``--check`` only say whether they are stale."""

import sys

from cli.migrate.foreign.part import FIELDS
from hack.migration.pages import page, rewritten, unserved


def main(arguments: list[str]) -> int:
    check, stale = "--check" in arguments, 0
    for system in FIELDS:
        at = page(system)
        text = at.read_text()
        made = rewritten(text, system)
        if made != text:
            stale += 1
            print(f"{'stale' if check else 'wrote'}: {at.name}")
            if not check:
                at.write_text(made)
        print(f"{system}: {unserved(system)} fields are not yet served")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
