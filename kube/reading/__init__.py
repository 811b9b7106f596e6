"""Watches, and typed copies that they keep current."""
