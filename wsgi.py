"""For WSGI hosts that want a module: ``gunicorn wsgi:app``."""

from caesar_server.app import create_app

app = create_app()
