"""The controller's configuration: Kueue's file in, one frozen ``ControllerConfig`` out.

``keys`` lists every key; ``reader`` walks a file by that list; ``decisions`` makes what the engine reads, ``process``
what the rest of the controller reads; ``load`` puts it together.
"""
