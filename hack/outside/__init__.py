"""A driver from outside: random histories of queues by Kueue's documented API alone, judged by ``history/``.

    seed -> story (objects and changes with their times) -> run (the controller before an API server in this process)
    -> the judge's verdict

It knows no module that decides. ``make explore`` runs it; ``python -m hack.outside --seed 7`` runs one story.
"""
