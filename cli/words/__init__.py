"""The refusals of commands: sentences as functions of their parameters. ``tessera`` puts ``Error:`` before them.

A sentence begins with the option, argument, file or object that it is about; a callback's with what was found, since
click puts the option before it.
"""
