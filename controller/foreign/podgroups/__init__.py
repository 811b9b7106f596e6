"""PodGroups of Volcano and KAI: how pods are grouped by them, and their status. Pure."""
