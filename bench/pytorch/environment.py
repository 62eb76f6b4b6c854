"""The benchmark's own Python environment: made on first use from requirements.txt, outside the sources (build/ is ignored)."""

import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "build" / "pytorch_environment"


def python_of(environment):
    """The environment's interpreter; makes the environment and installs requirements.txt when it is not complete yet."""
    environment = pathlib.Path(environment)
    python = environment / "bin" / "python"
    complete = environment / "requirements_installed.txt"
    wanted = (HERE / "requirements.txt").read_text()
    if not complete.exists() or complete.read_text() != wanted:
        print(f"installing {', '.join(wanted.split())} into {environment}", file=sys.stderr)
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"], check=True, stdout=sys.stderr)
        complete.write_text(wanted)
    return str(python)


def enter(environment, python=None):
    """Runs this program again inside the environment (or under `python`), unless it already runs there."""
    if os.environ.get("SNUG_PYTORCH_BENCH_INSIDE"):
        return
    interpreter = python or python_of(environment)
    os.environ["SNUG_PYTORCH_BENCH_INSIDE"] = "1"
    os.execv(interpreter, [interpreter, *sys.argv])
