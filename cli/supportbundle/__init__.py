"""``tessera support-bundle``: collects the data of a bug report in one file."""
