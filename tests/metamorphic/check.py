"""One case: a mutated model, its findings and its rewrites, compared with those of the model as it was."""

import json
import os

import onnx

import product
import prove
from mutate import Original, Step
from mutations.wholes import EXTERNAL

FAILURES = ("different", "panic", "hang", "not loading", "called invalid", "findings differ")
LOOSE = 4.0  # rewritten models may differ by this times the bound of the proof


class Subject(Original):
    """A model with what the product says of it and makes of it."""

    def __init__(self, path, seed, binary, folder):
        super().__init__(path, seed)
        self.binary, self.folder = binary, folder
        self.file = os.path.join(folder, "original.onnx")
        self.params = os.path.join(folder, "params")
        prove.save(self.model, self.file)
        answer = product.inspect(binary, self.file)
        if answer.code != 0:
            raise ValueError(f"inspect exits {answer.code}: {answer.sentence()}")
        self.found = json.loads(answer.out)
        product.parameters(self.found, self.params)
        self.asked = product.commands(self.found)
        self.tests = [(s, self.signature.make(s, seed + 50 + i)) for i, s in enumerate(self.rewritten_sizes)]
        self.rewritten = {}
        self.plain = None

    def run(self, path):
        """Outputs for each test; an exception's text where a length is refused. Raises if the file does not load."""
        running = prove.session(path)
        results = []
        for _, feed in self.tests:
            try:
                results.append(running.run(None, feed))
            except Exception as error:  # ONNX Runtime has no class of its own for a run that fails
                results.append(str(error).splitlines()[0])
        return results

    def expected(self, command):
        """(exit code, outputs or None, whether the outputs tell the rewritten model from the model as it was)."""
        key = tuple(command)
        if key not in self.rewritten:
            out = os.path.join(self.folder, "expected.onnx")
            answer = product.rewrite(self.binary, self.file, command, self.params, out)
            results, seen = None, False
            if answer.code == 0:
                results = self.run(out)
                self.plain = self.plain or self.run(self.file)
                seen = any(isinstance(a, str) or isinstance(b, str) or prove.difference(a, b, 10 * LOOSE * self.bound, feed, sizes)
                           for a, b, (sizes, feed) in zip(self.plain, results, self.tests))
            self.rewritten[key] = (answer.code, results, seen)
        return self.rewritten[key]

    def write(self, model):
        """Saves a mutated model for the product."""
        path = os.path.join(self.folder, "mutated.onnx")
        prove.save(model, path, any(p.key == EXTERNAL for p in model.metadata_props))
        return path


def checked(out, path):
    """Raises what ONNX's checker says of a file, if it has nothing to say of the one that it was made from."""
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError:
        return
    onnx.checker.check_model(out)


def unequal(subject, path):
    """Whether a mutated model differs from the unmutated one at the sizes of rewritten models: the mutator's fault."""
    subject.plain = subject.plain or subject.run(subject.file)
    for a, b, (sizes, feed) in zip(subject.plain, subject.run(path), subject.tests):
        if not isinstance(a, str) and (isinstance(b, str) or prove.difference(a, b, subject.bound * 2, feed, sizes)):
            return True
    return False


def inspected(subject, path):
    """(class, detail) of the findings of a mutated model."""
    answer = product.inspect(subject.binary, path)
    if answer.crash():
        return answer.crash(), answer.sentence()
    if answer.code == 4:
        return "refused", answer.sentence()
    if answer.code != 0:
        return "called invalid", f"exit {answer.code}: {answer.sentence()}"
    return product.compared(subject.found, json.loads(answer.out))


def rewritten(subject, path, command):
    """(class, detail) of one rewrite of a mutated model."""
    code, want, _ = subject.expected(command)
    out = os.path.join(subject.folder, "out.onnx")
    answer = product.rewrite(subject.binary, path, command, subject.params, out)
    if answer.crash():
        return answer.crash(), answer.err.strip()[-300:]
    if answer.code == 3:
        return "called invalid", answer.sentence()
    if answer.code != 0:
        return "refused", (f"exit {answer.code}: " if answer.code != 4 else "") + answer.sentence()
    try:
        got = subject.run(out)
        checked(out, path)
    except Exception as error:  # whatever keeps the file from loading
        return "not loading", str(error).splitlines()[0][:300]
    if code != 0:
        return "only the mutated model is rewritten", f"exit {code} before"
    for a, b, (sizes, feed) in zip(want, got, subject.tests):
        if isinstance(a, str):
            continue
        if isinstance(b, str):
            if unequal(subject, path):
                return "unproven", str(sizes)
            return "different", f"at {sizes}: does not run: {b[:200]}"
        wrong = prove.difference(a, b, LOOSE * subject.bound, feed, sizes)
        if wrong:
            return ("unproven" if unequal(subject, path) else "different"), f"at {sizes}: {wrong}"
    return "equal", ""


def judge(subject, steps, command):
    """(class, detail) after some steps; of the findings where the command is None. None if the steps do not hold."""
    model, done, unproven = subject.mutated(steps)
    if unproven or len(done) != len(steps):
        return None, ""
    path = subject.write(model)
    return inspected(subject, path) if command is None else rewritten(subject, path, command)


def shrink(subject, steps, command, kind):
    """The fewest steps, at the fewest places, after which the same class of failure remains."""
    def fails(tried):
        return judge(subject, tried, command)[0] == kind
    alone = next((s for s in steps if len(steps) > 1 and fails([s])), None)
    steps = [alone] if alone else list(steps)
    i = 0
    while i < len(steps) and len(steps) > 1:
        less = steps[:i] + steps[i + 1:]
        if fails(less):
            steps = less
        else:
            i += 1
    for i, step in enumerate(steps):
        if step.everywhere:
            for seed in range(6):
                less = steps[:i] + [Step(step.mutation, seed, False)] + steps[i + 1:]
                if fails(less):
                    steps = less
                    break
    return steps
