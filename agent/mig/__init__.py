"""Cutting GPUs into MIG instances: the journal, one GPU's change, the keeping of all, mig-parted's file and label."""
