"""Sentences that users read: the definition of a sentence, and those about layouts, which every room shares."""
