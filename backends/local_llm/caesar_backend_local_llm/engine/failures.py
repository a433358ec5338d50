"""What the engine raises; the layers above turn it into answers."""

from __future__ import annotations


class ModelLoadError(Exception):
    """A model cannot be loaded.

    :ivar sentence: why, and what to do, for the operator.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class AbortedError(Exception):
    """The evaluation was ended by its flag."""


class EvaluationError(Exception):
    """The library could not evaluate; the instance is as new and can be used again."""
