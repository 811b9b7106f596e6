"""PodGroups of Volcano and KAI: how pods are grouped by them, and what their status says. Pure."""
