"""The command `posenc-onnx`."""

from __future__ import annotations

import signal
import sys

from . import _inputs, _native


def main() -> int:
    """Runs the command line and returns its exit code."""
    # Python would only note Ctrl-C, and act on it when the command is done.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.run(sys.argv[1:], _inputs.onnxruntime())


if __name__ == "__main__":
    sys.exit(main())
