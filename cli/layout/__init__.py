"""``tessera layout``: what a layout would change, and to apply it."""
