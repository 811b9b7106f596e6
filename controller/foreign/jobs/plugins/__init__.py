"""Plugins of Volcano's Jobs: what each writes into pods, and which objects it keeps beside them. Pure."""
