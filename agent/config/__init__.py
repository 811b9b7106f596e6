"""The agent's configuration: flags, environment and file in, one frozen ``Settings`` out.

``table`` lists every setting; ``load`` reads them, and keeps the configuration that was last in use; ``sections`` reads
what is more than a value; ``changes`` says what a reload touches.
"""
