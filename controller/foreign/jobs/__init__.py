"""Volcano's Jobs (``batch.volcano.sh/v1alpha1``), run by Tessera."""
