"""``tessera audit``: whether a cluster keeps the rules, judged from outside."""
