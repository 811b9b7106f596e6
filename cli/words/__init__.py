"""What a command refuses, and why: sentences as functions of their parameters. ``tessera`` puts ``Error:`` before them.

One begins with the option, argument, file or object that it is about; a callback's with what was found, since click
puts the option before it.
"""
