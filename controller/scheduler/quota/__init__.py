"""Quota: the cohort forest, usage, shares, live capacity, usage history."""
