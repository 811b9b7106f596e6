"""``tessera support-bundle``: what a bug report needs, in one file."""
