"""Writes `python/posenc_onnx/_options.py`: the keywords of requests as types, from what the extension declares.

Run it with an environment in which the package is installed. With `--check`, it compares instead of writing.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

FILE = Path(__file__).parent / "python" / "posenc_onnx" / "_options.py"

HEAD = '''"""The keywords of requests, as types. Made by `options.py`; what the extension declares counts at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from ._types import Config, ImageSize, Layers, Numbers, Params
'''

CLASSES = [
    ("TableOptions", "TypedDict, total=False", "Keywords of `table`.", True),
    ("Options", "TableOptions, total=False", "Keywords of `plan` and `rewrite`.", False),
]


def extension() -> ModuleType:
    """The extension without the package around it, which needs the file that is made here."""
    package = importlib.util.find_spec("posenc_onnx")
    spec = PathFinder.find_spec("_native", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        sys.exit("posenc_onnx is not installed here")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text() -> str:
    parts = [HEAD]
    options = extension().options()
    for name, bases, title, of_table in CLASSES:
        parts.append(f'\n\nclass {name}({bases}):\n    """{title}"""\n')
        for option, kind, help, in_table in options:
            if in_table == of_table:
                about = help[0].upper() + help[1:]
                parts.append(f'\n    {option}: {kind} | None\n    """{about}."""')
        parts.append("\n")
    return "".join(parts)


def main() -> None:
    if "--check" in sys.argv[1:]:
        if FILE.read_text(encoding="utf-8") != text():
            sys.exit(f"{FILE.name} is not what options.py writes: run it again")
    else:
        FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
