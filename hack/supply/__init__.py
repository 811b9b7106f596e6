"""The bill of materials (CycloneDX) of what is locked, and the licences that are allowed: ``python -m hack.supply``."""
