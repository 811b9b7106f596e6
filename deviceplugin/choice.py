"""Which devices to prefer, without holding up anybody else: the shell around ``inventory.preference``."""
