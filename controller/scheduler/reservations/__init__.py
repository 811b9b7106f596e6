"""Reservations of preemptors and of backfill: Tessera's own, under ``tessera.*`` keys of the configuration."""
