from caesar_backend_folder import FolderBackend
from caesar_server.testing import BackendConformance


class TestFolder(BackendConformance):
    backend_class = FolderBackend
