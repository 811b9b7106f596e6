"""Realistic faults planted in the product, and whether nets that do not know its code find them: ``make planted``.

    faults (what is rewritten in which function) -> planting (a copy of the tree with one)
    -> nets (programs that run the copy and judge it from outside) -> table (fault x net)

A function is found by its qualified name in the syntax tree, so that no move of a file breaks a fault.
"""
