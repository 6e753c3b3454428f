"""`python -m lacuna ...`: the command `lacuna` of this installation, wherever its folder of commands is, on PATH or not."""

import os
import sys
from importlib import metadata
from pathlib import Path


def find():
    """The program that was installed with this package, or built beside it."""
    here = Path(__file__).resolve().parent
    built = here.parent.parent / "lacuna"  # build/python/lacuna and build/lacuna
    if built.is_file() and (here.parent.parent / "CMakeCache.txt").is_file():
        return built
    try:
        for file in metadata.files("lacuna") or ():
            path = Path(file.locate())
            if file.name == "lacuna" and path.is_file() and os.access(path, os.X_OK):
                return path
    except metadata.PackageNotFoundError:
        pass
    return None


def main():
    program = find()
    if program is None:
        sys.exit("lacuna: the command is not where this package was installed; install the package anew")
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
