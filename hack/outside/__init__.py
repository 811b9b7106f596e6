"""A driver from outside: random histories of queues by Kueue's documented API alone, judged by ``history/``.

    seed -> story (objects and changes with their times) -> run (the controller before an API server in this process)
    -> the judge's verdict

``acts`` says what a story consists of; ``setting`` draws its queues, ``shapes`` its jobs, ``story`` what happens, and
``endings`` how it ends. It knows no module that decides. ``make explore`` runs it; ``python -m hack.outside --seed 7``
runs one story; ``net`` is it as a net for planted faults.
"""
