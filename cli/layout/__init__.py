"""``tessera layout``: shows what a layout would change, and applies it."""
