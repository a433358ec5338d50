"""For those who run gunicorn themselves, in this folder: ``gunicorn wsgi:app``.

gunicorn reads this file unless ``-c`` names another one; its own flags win over what stands here.
"""

import sys

from caesar_server.cli.gunicorn_options import bind_address, gunicorn_options
from caesar_server.cli.startup import check_settings, read_settings
from caesar_server.errors import SettingsError
from caesar_server.store.opening import prepare_store
from caesar_server.web.observing.logs import configure_logging

try:
    _settings = read_settings(None).settings
    for _sentence in check_settings(_settings):
        sys.stderr.write(f"warning: {_sentence}\n")
    _options = gunicorn_options(_settings)
except SettingsError as error:
    raise SystemExit(f"caesar-server: {error}") from error

configure_logging(_settings)
bind = bind_address(_settings)
globals().update(_options)


def on_starting(server):
    """Bring the database of jobs up to date before the workers are there."""
    _options["on_starting"](server)
    try:
        prepare_store(_settings)
    except SettingsError as error:
        raise SystemExit(f"caesar-server: {error}") from error
