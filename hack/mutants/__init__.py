"""Mutation testing: do the tests notice when the code is wrong? ``make mutants COUNT=100 SEED=1``.

A mutant is the product with one small mistake planted: ``<`` in place of ``<=``, a condition negated, a call left out.
The tests that mirror its room run against it until the first one fails. A mutant that no test notices survived: either
a claim is missing from the tests, or the mutant behaves as the original. The first is mended with a test; the second is
listed in ``survivors.toml``, with the reason.

The draw is repeatable and hardly moves: each place for a mistake has a number from the seed and its own text, and the
lowest numbers are drawn. A change elsewhere in the code draws no others, and ten mutants are ten of the hundred.

    operators.py   which mistakes an expression or a statement can hold          pure
    planting.py    the places of a module, a module with a mistake planted       pure
    choosing.py    rooms, the draw, which tests mirror a module, in which order  pure
    survivors.py   the list of those that behave as the original                 pure
    verdict.py     what became of each, whether that is enough, as text or JSON  pure
    running.py     copies of the tree, pytest in them under limits               shell
    trial.py       mutants against their tests, some at a time                   shell
    __main__.py    the command

It exits with 0 when at least 85 % died and every survivor is listed, with 1 when not, and with 2 when it cannot tell:
wrong arguments, or tests that fail without any mutant.
"""
