"""For those who run gunicorn themselves, in this folder: ``gunicorn wsgi:app``.

gunicorn reads this file unless ``-c`` names another one; its own flags win over what stands here.
"""

import sys

from caesar_server.cli.gunicorn_options import bind_address, gunicorn_options
from caesar_server.cli.startup import read_settings
from caesar_server.errors import SettingsError
from caesar_server.settings import check_exposure
from caesar_server.web.access.keyring import configured_keys
from caesar_server.web.access.rates import check_limits
from caesar_server.web.observing.logs import configure_logging

try:
    _settings = read_settings(None).settings
    _keys = configured_keys(_settings)
    check_exposure(_settings, has_keys=_keys is not None)
    for _sentence in check_limits(_settings, _keys or ()):
        sys.stderr.write(f"warning: {_sentence}\n")
except SettingsError as error:
    raise SystemExit(f"caesar-server: {error}") from error

configure_logging(_settings)
bind = bind_address(_settings)
globals().update(gunicorn_options(_settings))
