"""Where the packages of the extra `eval` lie, and what is said when one is missing."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from foveate.errors import MissingExtraError

__all__ = ["import_extra", "package_file", "package_folder"]


def package_folder(module: str) -> Path:
    """Return the folder of the package whose import name is `module`, without importing it.

    Raises:
        MissingExtraError: it is not installed.

    """
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(module)
    return Path(next(iter(spec.submodule_search_locations)))


def package_file(module: str, path: str) -> Path:
    """Return the file at `path`, relative to the folder of the package `module`.

    Raises:
        MissingExtraError: the package is not installed, or has no such file.

    """
    file = package_folder(module) / path
    if not file.is_file():
        raise MissingExtraError(
            f"the installed package {module} has no file {path}, which drawing examples reads; "
            "install the versions that Foveate names: pip install --upgrade 'foveate[eval]'"
        )
    return file


def import_extra(module: str) -> ModuleType:
    """Import `module`, a package of the extra or a module in one.

    Raises:
        MissingExtraError: it, or a package that it needs, is not installed.

    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _missing(error.name or module) from error


def _missing(module: str) -> MissingExtraError:
    return MissingExtraError(
        f"drawing examples needs the package {module}, which is not installed; "
        "install what it needs with: pip install 'foveate[eval]'"
    )
