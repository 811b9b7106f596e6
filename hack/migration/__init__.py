"""Every field of Volcano's and KAI's objects and what becomes of it: the migration pages' tables, and a test's list."""
