"""What the native library does to a process, each in one of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

#: Seconds; a hang is what these tests look for.
LIMIT_S = 60


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def test_listing_it_imports_neither_the_engine_nor_numpy() -> None:
    code = """
    import sys, caesar_backend_local_llm as b
    b.LocalLlmBackend(b.LocalLlmOptions(models={"x": b.ModelOptions(path="y")})).models()
    sys.exit(bool({"llama_cpp", "numpy", "jinja2"} & set(sys.modules)))
    """
    assert run(code).returncode == 0


ASK = """
import os, sys
from caesar_backend_local_llm import LocalLlmBackend, LocalLlmOptions, ModelOptions
from caesar_server.contract import CompletionRequest, Sampling
from caesar_server.testing import collect_events

def opened(**options):
    backend = LocalLlmBackend(
        LocalLlmOptions(models={"tiny": ModelOptions(path=sys.argv[1], **options)})
    )
    backend.open()
    return backend

def ask(backend):
    request = CompletionRequest(
        prompts=("Once upon",), sampling=Sampling(temperature=0, max_tokens=3)
    )
    events = collect_events(backend, request)
    return "".join(getattr(event, "text", "") for event in events)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_child_of_a_process_that_has_used_it(engine, tiny_model, threads: int) -> None:
    """A build with OpenMP hangs there for ever, with two threads."""
    code = ASK + textwrap.dedent(
        """
        threads = int(sys.argv[2])
        first = opened(n_threads=threads)
        print(ask(first), flush=True)
        child = os.fork()
        if child == 0:
            print(ask(opened(n_threads=threads)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(ask(first), flush=True)
        first.close()
        """
    )
    result = run(code, tiny_model("echo").path, threads)
    assert result.stdout == " a time there\n" * 3, result.stderr


def test_the_engine_computes_with_one_thread_and_without_openmp(engine, tiny_model) -> None:
    """Threads of OpenMP spin while they wait: two on two busy cores are many times slower."""
    code = ASK + textwrap.dedent(
        """
        import pathlib
        from caesar_backend_local_llm.engine.native import native
        backend = opened(instances=2)
        ask(backend)
        (host,) = backend._hosts.values()
        lib = native().lib
        for instance in host._ready.model.instances:
            context = instance._context
            print(lib.llama_n_threads(context), lib.llama_n_threads_batch(context))
        maps = pathlib.Path("/proc/self/maps").read_text()
        print("libgomp" in maps or "libomp" in maps)
        backend.close()
        """
    )
    assert run(code, tiny_model("echo").path).stdout == "1 1\n1 1\nFalse\n"


def test_a_failed_assertion_is_logged_and_ends_the_process_at_once(engine, tiny_model) -> None:
    """Left alone, it would start a debugger to print a backtrace."""
    code = ASK + textwrap.dedent(
        """
        import ctypes, logging
        logging.basicConfig()
        backend = opened()
        print(ask(backend), flush=True)
        from caesar_backend_local_llm.engine.native import native
        library = native().lib._lib
        abort = ctypes.CDLL(library._name, handle=library._handle).ggml_abort
        abort(b"file.c", 7, b"GGML_ASSERT(%s) failed", b"all is well")
        """
    )
    result = run(code, tiny_model("echo").path)
    assert result.returncode == -signal.SIGABRT
    assert "CRITICAL" in result.stderr
    assert "GGML_ASSERT(all is well) failed" in result.stderr
    assert "gdb" not in result.stderr


def test_what_the_library_says_goes_to_the_log_alone(engine, tiny_model) -> None:
    code = ASK + "backend = opened(); ask(backend); backend.close()"
    result = run(code, tiny_model("echo").path)
    assert (result.stdout, [line for line in result.stderr.splitlines() if "llama" in line]) == (
        "",
        [],
    )


@pytest.mark.parametrize(
    ("module", "package"), [("llama_cpp", "llama-cpp-python"), ("llguidance", "llguidance")]
)
def test_without_the_engine_it_says_what_to_install(
    engine, tmp_path: Path, module: str, package: str
) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ImportError('not here', name={module!r})")
    code = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import caesar_backend_local_llm as b
    from caesar_server.contract import BackendError
    try:
        models = {"one": b.ModelOptions(path="one.gguf")}
        b.LocalLlmBackend(b.LocalLlmOptions(models=models)).open()
    except BackendError as error:
        print(error.info().code, error)
    """
    result = run(code, tmp_path)
    assert result.stdout == (
        f"missing_engine {package} cannot be imported (not here): pip install {package}\n"
    ), result.stderr
