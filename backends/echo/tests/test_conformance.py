from caesar_backend_echo import EchoBackend
from caesar_server.testing import BackendConformance


class TestEcho(BackendConformance):
    backend_class = EchoBackend
