"""A value as messages cite it."""

import json
from typing import Final

_MOST: Final = 200


def quoted(value: object) -> str:
    """A value in double quotes and on one line, as in the lines about manifests; cut where it is long."""
    return json.dumps(str(value)[:_MOST], ensure_ascii=False)
