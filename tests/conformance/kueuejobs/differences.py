"""Where we differ from Kueue on purpose: rules over a case's input, each with its reason.

A rule never sees which case it is, so it cannot name one: what it lets pass it lets pass in every corpus.
"""

from tests.conformance.replay import Rule

RULES: tuple[Rule, ...] = ()
