"""The controller's configuration: it reads Kueue's file, and makes one frozen ``ControllerConfig``.

``keys`` lists every key; ``reader`` walks a file by that list; ``decisions`` makes the engine's part; ``load`` makes
the part of the rest of the controller, and puts both together.
"""
