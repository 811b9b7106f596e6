"""``tessera migrate``: a plan from what runs today to Tessera, and back."""
