"""The failpoints' seam: with this folder on PYTHONPATH, ``TESSERA_FAILPOINT`` says what happens where.

Python imports a module of this name at each start, before any of ours. Without the folder the variable says nothing:
the product reads it nowhere.
"""

import os

_TEXT = os.environ.get("TESSERA_FAILPOINT", "")

if _TEXT:
    from failpoints import points
    from hack.failpoints.armed import armed

    _ARMED = armed(_TEXT)
    points.before, points.after = _ARMED.before, _ARMED.after
