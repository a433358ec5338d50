"""Clarifying questions before a job: asked by a backend or by the server, answered once."""
