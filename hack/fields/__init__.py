"""Fields of classes that other modules write, found in the syntax trees: ``python -m hack.fields.written``."""
