"""``tessera audit``: whether what a cluster did keeps the rules, judged from outside."""
