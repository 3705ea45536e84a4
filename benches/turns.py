"""Two models in ONNX Runtime on the CPU, in turn in one process."""

import statistics
import time


def session(path, denormal_as_zero=False):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Threads that wait for work in a loop would take the cores of the model whose turn it is.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.set_denormal_as_zero", str(int(denormal_as_zero)))
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(str(path), options, providers=providers)


def in_turn(pair, given, runs):
    """The median milliseconds of each of two sessions, and the median ratio of neighbouring runs."""
    walls = [[], []]
    for turn in range(runs + 1):
        # Each goes first in every other turn.
        for i in ((0, 1), (1, 0))[turn % 2]:
            begin = time.perf_counter()
            pair[i].run(None, given)
            walls[i].append(time.perf_counter() - begin)
    walls = [wall[1:] for wall in walls]
    return ([1e3 * statistics.median(wall) for wall in walls],
            statistics.median(a / b for a, b in zip(*walls)))
