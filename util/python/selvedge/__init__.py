"""Selvedge's libraries and tools, as files of this package.

MPI programs in Python reach Selvedge through the libfabric of their MPI library. The command
``selvedge-run`` starts them, and the functions of this module do the same from a program.
"""

import os
import subprocess
from pathlib import Path
from typing import Dict, Optional

__all__ = ["environment", "lib_path", "run", "tool_path"]

_PACKAGE = Path(__file__).resolve().parent


def lib_path() -> Path:
    """Returns the folder with ``libfabric.so.1`` and ``libselvedge_heap.so``.

    Its folder ``libfabric`` has the providers for another libfabric, for ``FI_PROVIDER_PATH``.
    """
    return _PACKAGE / "lib"


def tool_path(name: str) -> Path:
    """Returns the path of a tool, such as ``fi_top``.

    Raises ``FileNotFoundError``, with the names of the tools, if there is no such tool.
    """
    folder = _PACKAGE / "bin"
    tools = sorted(os.listdir(folder))
    if name not in tools:
        raise FileNotFoundError(f"{name!r} is no tool of Selvedge: {', '.join(tools)} are")
    return folder / name


def environment(route: str = "plugin", provider: str = "shm") -> Dict[str, str]:
    """Returns the variables that lead the ranks of every MPI library over a route.

    ``route`` is ``plugin``, ``library`` or ``heap``, and ``provider`` is ``shm`` or ``tcp``, as
    for ``selvedge-run``. The variables have to be set when a rank starts: the loader reads
    ``LD_LIBRARY_PATH`` only then. Paths that the environment of this process has stay behind
    Selvedge's.

    Raises ``ValueError``, with the tool's message, for another route or provider.
    """
    tool = tool_path("selvedge-run")
    command = [tool, "--environment", "--route", route, "--provider", provider]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise ValueError(result.stderr.strip())
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


def run(
    launcher: str, *arguments: str, route: Optional[str] = None, provider: str = "shm"
) -> int:
    """Runs ``launcher arguments..``, a line for MPI jobs, over Selvedge, and returns its exit code.

    Without ``route``, two ranks try which route works, as ``selvedge-run`` does.
    """
    command = [str(tool_path("selvedge-run")), "--provider", provider]
    if route is not None:
        command += ["--route", route]
    return subprocess.call([*command, launcher, *arguments])
