"""The controller's configuration: Kueue's file in, one frozen ``ControllerConfig`` out.

``keys`` lists every key; ``reader`` walks a file by that list; ``decisions`` makes what the engine reads; ``load``
makes what the rest of the controller reads, and puts it together.
"""
