"""Runs the tools: the scripts of the package, and ``python -m selvedge TOOL ..``."""

import os
import sys
from typing import List, NoReturn

from selvedge import tool_path


def run_script() -> NoReturn:
    """Replaces this process by the tool with the name of the script that calls this function."""
    _replace(os.path.basename(sys.argv[0]), sys.argv[1:])


def _replace(name: str, arguments: List[str]) -> NoReturn:
    try:
        tool = tool_path(name)
        os.execv(tool, [str(tool), *arguments])
    except OSError as error:
        sys.exit(f"selvedge: cannot run {name}: {error}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("selvedge: no tool is given: python -m selvedge TOOL [ARGUMENT]..")
    _replace(sys.argv[1], sys.argv[2:])
