"""The OpenAI-compatible surface: ``/compat``, also under ``/v1`` and ``/compat/v1``."""
