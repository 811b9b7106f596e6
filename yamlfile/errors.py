"""What can be wrong with a configuration: one line each, naming place, key, what was found and what was expected."""


class ConfigError(Exception):
    """A user's mistake. ``str()`` is the line to show: ``file:line: key.path: found X, expected Y``.

    ``from_file`` tells whether the config file is to blame (then the last good one may stand in) or a flag or an
    environment variable.
    """

    def __init__(self, where: str, key: str, found: str, expected: str, *, from_file: bool = True) -> None:
        self.where = where
        self.key = key
        self.found = found
        self.expected = expected
        self.from_file = from_file
        parts = [where, key, f"found {found}, expected {expected}"]
        super().__init__(": ".join(part for part in parts if part))
