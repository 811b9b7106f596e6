"""Pages, pictures and dashboards written from the code: each module writes its own, ``python -m hack.pages.rooms``."""
