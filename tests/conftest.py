"""What tests of several parts share: the manual, packages, servers of their own, S3."""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psycopg
import pytest

#: How long a server may take until it answers, in seconds; far more than it needs.
START_WITHIN_S = 60.0
STOP_WITHIN_S = 40.0

_BLOCK = re.compile(
    r"^\.\. code-block:: (?P<language>\w+)\n"
    r"(?P<options>(?:   :.*\n)*)\n"
    r"(?P<body>(?:(?:   .*)?\n)+)",
    re.MULTILINE,
)
_OPTION = re.compile(r"   :(\w+): *(.*)\n")


@dataclass(frozen=True)
class CodeBlock:
    """A ``code-block`` of a page.

    :param kind: its ``:class:``, which says what a test does with it.
    """

    where: str
    language: str
    kind: str
    caption: str
    code: str


def _code_blocks(page: Path) -> Iterator[CodeBlock]:
    text = page.read_text() + "\n"
    for match in _BLOCK.finditer(text):
        options = dict(_OPTION.findall(match["options"]))
        lines = [line[3:] for line in match["body"].rstrip().split("\n")]
        yield CodeBlock(
            where=f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}",
            language=match["language"],
            kind=options.get("class", ""),
            caption=options.get("caption", ""),
            code="\n".join(lines) + "\n",
        )


@pytest.fixture(scope="session")
def code_blocks() -> Callable[[Path], list[CodeBlock]]:
    """Read the code blocks of a page, in their order."""
    return lambda page: list(_code_blocks(page))


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return Path(__file__).resolve().parents[1]


MakeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """Make what takes long a single time, however many processes share the tests.

    Called with a name and with what fills an empty folder; gives the folder, for reading.  If
    that fails, whoever asks next tries anew.
    """
    base = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        # of pytest-xdist: its workers have folders side by side
        base = base.parent

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        folder, filled = base / name, base / f"{name}.filled"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not filled.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                filled.touch()
        return folder

    return make


class _Ports:
    """Ports that nobody else is given.

    They lie below those that the system chooses itself, for who asks for port 0 and for whoever
    connects; a lock on a file, held until the end, keeps them from tests of other processes.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"caesar-test-ports-{os.getuid()}"
        self._folder.mkdir(exist_ok=True)
        self._left = iter(range(20_000, 32_000))
        self._locks: list[TextIO] = []

    def next(self) -> int:
        for port in self._left:
            lock = (self._folder / str(port)).open("w")
            if self._take(lock) and _is_free(port):
                self._locks.append(lock)
                return port
            lock.close()
        raise AssertionError("no port is left")

    @staticmethod
    def _take(lock: TextIO) -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        for lock in self._locks:
            lock.close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # as servers do it: connections that have just ended are no hindrance
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture(scope="session")
def free_port() -> Iterator[Callable[[], int]]:
    """Return a function that gives a new port for a server that cannot choose one itself."""
    ports = _Ports()
    yield ports.next
    ports.close()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as response:
            return response.status == 200
    except OSError:
        # not there yet, or so busy that it takes longer
        return False


@contextmanager
def _serve(
    port: int,
    command: Callable[[int], Sequence[str | Path]],
    cwd: Path,
    env: Mapping[str, str] | None = None,
) -> Iterator[int]:
    log_path = cwd / f"server-{port}.log"
    with log_path.open("wb") as log:
        server = subprocess.Popen(
            command(port), cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + START_WITHIN_S
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"no server: exit code {server.poll()}\n{log_path.read_text()}")
            time.sleep(0.02)
        yield port
    finally:
        server.terminate()
        try:
            server.wait(STOP_WITHIN_S)
        finally:
            server.kill()
            server.wait()


Serve = Callable[..., AbstractContextManager[int]]


@pytest.fixture(scope="session")
def serve(free_port: Callable[[], int]) -> Serve:
    """Run a server program while a ``with`` block lasts.

    Called with a function from a free port to the command, the folder to start it in and, if
    wanted, its environment; gives the port once ``/healthz`` answers there.
    """
    return lambda *args, **options: _serve(free_port(), *args, **options)


#: Lets a new environment see what is installed in this one, links to source folders included.
_SEE = "import site; site.addsitedir({!r})\n"
_SCRIPT = "#!{python}\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
_SCRIPTS = {
    "pip": "pip._internal.cli.main",
    "caesar-server": "caesar_server.cli",
}


@dataclass(frozen=True)
class LinkedEnvironment:
    """A virtual environment that has what is installed here; what it installs is its own."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, seen: str | Path = "") -> LinkedEnvironment:
        """Make one in a folder: quick, since it installs nothing.

        :param seen: the folder of packages that it has; empty for those that are installed here.
        """
        venv.create(folder, with_pip=False)
        (site_packages,) = folder.glob("lib/python*/site-packages")
        see = _SEE.format(str(seen) or sysconfig.get_path("purelib"))
        (site_packages / "linked.pth").write_text(see)
        for name, module in _SCRIPTS.items():
            script = folder / "bin" / name
            script.write_text(_SCRIPT.format(python=folder / "bin" / "python", module=module))
            script.chmod(0o755)
        return cls(folder)

    def variables(self) -> dict[str, str]:
        """Return the variables that a shell in this environment has."""
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {**ours, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def shell(self, script: str, cwd: Path) -> str:
        """Run a script as its reader would; return what it prints, or fail with all of it."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=cwd,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def make_environment(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], LinkedEnvironment]:
    """Make a new :class:`LinkedEnvironment`."""
    return lambda: LinkedEnvironment.make(tmp_path_factory.mktemp("linked"))


@pytest.fixture(scope="session")
def linked_environment() -> type[LinkedEnvironment]:
    """What makes one in a given folder."""
    return LinkedEnvironment


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a new, empty database of the server that ``CAESAR_TEST_DATABASE_URL`` names.

    It is dropped when all tests are done.
    """
    given = os.environ.get("CAESAR_TEST_DATABASE_URL")
    if not given:
        pytest.skip("CAESAR_TEST_DATABASE_URL names no PostgreSQL server")
    name = f"caesar_test_{uuid.uuid4().hex}"
    with psycopg.connect(given, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield urllib.parse.urlsplit(given)._replace(path=f"/{name}").geturl()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _postgres_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, which Debian has not on the path."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def _postgres_user() -> str | None:
    """Return whom the server runs as, since it refuses to run as root; None for this user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return None


class Cluster:
    """A PostgreSQL server of its own: folder, port, process."""

    def __init__(self, folder: Path, port: int) -> None:
        programs = _postgres_programs()
        assert programs is not None
        self._programs = programs
        self._folder = folder
        self.port = port
        self.url = f"postgresql://tester@127.0.0.1:{self.port}/postgres"
        subprocess.run(
            [programs / "initdb", "-D", folder, "-U", "tester", "-A", "trust", "--no-sync"],
            user=_postgres_user(),
            cwd="/",
            check=True,
            capture_output=True,
            timeout=START_WITHIN_S,
        )
        self.start()

    def start(self) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
        }
        options = [f"-c{name}={value}" for name, value in settings.items()]
        with (self._folder.parent / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder, *options],
                user=_postgres_user(),
                cwd="/",
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_WITHIN_S
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=20).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                assert self._process.poll() is None, (self._folder.parent / "log").read_text()
                time.sleep(0.05)

    def stop(self, number: int) -> None:
        """Stop it: SIGINT ends its sessions in order, SIGQUIT as a crash would."""
        self._process.send_signal(number)
        self._process.wait(START_WITHIN_S)


@pytest.fixture
def cluster(free_port: Callable[[], int]) -> Iterator[Cluster]:
    if _postgres_programs() is None:
        pytest.skip("PostgreSQL's initdb is not installed")
    if os.geteuid() == 0 and _postgres_user() is None:
        pytest.skip("PostgreSQL does not run as root, and there is no other user")
    with tempfile.TemporaryDirectory() as folder:
        owner = _postgres_user()
        if owner is not None:
            shutil.chown(folder, owner)
        one = Cluster(Path(folder) / "data", free_port())
        try:
            yield one
        finally:
            one.stop(signal.SIGQUIT)


@pytest.fixture(scope="module")
def s3_url(free_port: Callable[[], int]) -> Iterator[str]:
    """An S3 server, by others, in a process of its own."""
    pytest.importorskip("moto.server")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionError:
                assert time.monotonic() < deadline
                assert server.poll() is None
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
        server.kill()
