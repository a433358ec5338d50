"""For those who run gunicorn themselves, in this folder: ``gunicorn wsgi:app``.

gunicorn reads this file unless ``-c`` names another one; its own flags win over what stands here.
"""

from caesar_server.cli.gunicorn_options import bind_address, gunicorn_options
from caesar_server.cli.startup import read_settings, write_log
from caesar_server.errors import SettingsError
from caesar_server.settings import check_exposure

try:
    _settings = read_settings(None).settings
    check_exposure(_settings)
except SettingsError as error:
    raise SystemExit(f"caesar-server: {error}") from error

write_log(_settings.log_level)
bind = bind_address(_settings)
globals().update(gunicorn_options(_settings))
