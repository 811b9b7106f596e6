"""Sentences that users read: what one is, and those about layouts, which every room says alike."""
