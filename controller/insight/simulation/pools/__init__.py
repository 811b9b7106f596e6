"""Nodes that come and go in a simulation, by themselves: pools, interruptions, floors."""
