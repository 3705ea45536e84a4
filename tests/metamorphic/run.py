"""Mutates models, and asks `posenc-onnx` for the same findings and the same rewrites. See README.md."""

import argparse
import collections
import hashlib
import json
import multiprocessing
import os
import random
import re
import sys
import tempfile
import time

import check
from mutate import Step
from registry import TABLE

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SUBJECTS: dict = {}


def arguments():
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--binary", required=True, help="the posenc-onnx to test")
    p.add_argument("--models", action="append", help="a folder that is searched for .onnx files, or a file (default: fixtures)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--seconds", type=float, help="stop after this time")
    p.add_argument("--rewrites", type=int, help="stop after this many rewrites")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--keep", help="write shrunk failures to this folder")
    p.add_argument("--replay", help="run kept failures, a file or a folder of them, in place of random cases")
    p.add_argument("--open", help="a list of kept failures that are not mended yet: --replay expects them to fail, and random cases leave their mutations out")
    p.add_argument("--mutations", help="only these, separated by commas")
    return p.parse_args()


def models(folders):
    """Files below the folders, broken ones left out."""
    found = []
    for folder in folders or [os.path.join(ROOT, "fixtures")]:
        if os.path.isfile(folder):
            found.append(folder)
        for base, _, files in os.walk(folder):
            found += [os.path.join(base, f) for f in files if f == "model.onnx" or f.endswith(".onnx") and "bad" not in base.split(os.sep)]
    return sorted(set(os.path.abspath(f) for f in found))


def subject(path, options):
    """A model of this process, or the reason why it cannot take part."""
    if path not in SUBJECTS:
        folder = tempfile.mkdtemp(prefix="m", dir=options.work)
        try:
            SUBJECTS[path] = check.Subject(path, options.seed, options.binary, folder)
        except Exception as error:  # a model without random inputs here is left out, and counted
            SUBJECTS[path] = str(error).splitlines()[0][:200]
    return SUBJECTS[path]


def plan(rng, names):
    """How many steps, 1 to 6, and more candidates than that, since not all fit."""
    return rng.randint(1, 6), [Step(rng.choice(names), rng.randrange(1 << 30), rng.random() < 0.5) for _ in range(15)]


def case(job):
    """Runs one case: a dict of what happened."""
    number, path, options = job
    rng = random.Random(f"{options.seed}:{number}")
    chosen = subject(path, options)
    report = {"model": path, "skipped": None, "steps": [], "unproven": [], "inspect": None, "rewrites": [], "failures": []}
    if isinstance(chosen, str):
        return report | {"skipped": chosen}
    most, steps = plan(rng, options.names)
    model, done, unproven = chosen.mutated(steps, most)
    report["unproven"] = [(s.mutation, os.path.relpath(path, ROOT), s.seed, s.everywhere, why) for s, why in unproven]
    report["steps"] = [s.mutation for s in done]
    if not done:
        return report
    file = chosen.write(model)
    kind, detail = check.inspected(chosen, file)
    report["inspect"] = (kind, detail)
    seen = [(None, kind, detail)] if kind in check.FAILURES else []
    asked = rng.sample(chosen.asked, min(9, len(chosen.asked)))
    accepted = [c for c in asked if chosen.expected(c)[0] == 0]
    for command in accepted[:7] + [c for c in asked if c not in accepted][:1 if rng.random() < 0.3 else 0]:
        kind, detail = check.rewritten(chosen, file, command)
        code, _, visible = chosen.expected(command)
        report["rewrites"].append((kind, detail, code == 0, visible))
        if kind == "unproven":
            report["unproven"].append((" + ".join(s.mutation for s in done), os.path.relpath(path, ROOT), detail))
        if kind in check.FAILURES:
            seen.append((command, kind, detail))
    least = None
    for command, kind, detail in seen:
        if not least or check.judge(chosen, least, command)[0] != kind:
            least = check.shrink(chosen, done, command, kind)
        _, detail = check.judge(chosen, least, command)
        report["failures"].append({"class": kind, "model": os.path.relpath(path, ROOT), "command": command, "input_seed": options.seed,
                                   "steps": [s.as_json() for s in least], "detail": detail, "case": number})
    return report


def jobs(paths, options):
    """Endless cases: the models in turn, shuffled anew in each round."""
    number = 0
    while True:
        order = list(paths)
        random.Random(f"{options.seed}:round:{number}").shuffle(order)
        for path in order:
            yield number, path, options
            number += 1


def share(part, whole):
    """A percentage."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


class Totals:
    """Counts of all cases."""

    def __init__(self, options):
        self.options = options
        self.begin = time.time()
        self.fired, self.unproven, self.inspects = (collections.Counter() for _ in range(3))
        self.classes, self.reasons, self.blamed, self.warned = (collections.Counter() for _ in range(4))
        self.accepted = self.accepted_refused = self.told = 0
        self.skipped, self.failures, self.examples = {}, {}, {}

    def add(self, report):
        """Counts one case, and keeps its failures."""
        if report["skipped"]:
            self.skipped[report["model"]] = report["skipped"]
            return
        self.fired.update(report["steps"])
        for name, *place in report["unproven"]:
            self.unproven[name] += 1
            self.examples.setdefault(name, place)
        if report["inspect"]:
            self.inspects[report["inspect"][0]] += 1
            if report["inspect"][0] == "less, and says so":
                self.warned.update(set(report["steps"]))
        for kind, detail, accepted, visible in report["rewrites"]:
            self.classes[kind] += 1
            self.accepted += accepted
            if kind == "refused" and accepted:
                self.accepted_refused += 1
                self.reasons[detail] += 1
                self.blamed.update(set(report["steps"]))
            self.told += kind == "equal" and visible
        for failure in report["failures"]:
            key = (failure["class"], tuple(sorted(s["mutation"] for s in failure["steps"])))
            if key not in self.failures:
                self.failures[key] = (collections.Counter(), failure)
                if self.options.keep:
                    keep(failure, self.options.keep)
            self.failures[key][0][" ".join(failure["command"][:2]) if failure["command"] else "inspect"] += 1

    def failed(self):
        """Whether anything was wrong with the product."""
        return bool(self.failures)

    def print(self):
        """The table."""
        total = sum(self.classes.values())
        minutes = (time.time() - self.begin) / 60
        print(f"\nrewrites      {total}   ({total / minutes:.0f} per minute; seed {self.options.seed})")
        print(f"  of those where the unmutated model is rewritten: {self.accepted}, refused {self.accepted_refused} = {share(self.accepted_refused, self.accepted)}")
        for kind in ("equal", "refused", "only the mutated model is rewritten", "unproven", *check.FAILURES[:-1]):
            note = f"   ({self.told} with outputs that the rewrite changed)" if kind == "equal" else ""
            print(f"  {kind:36} {self.classes[kind]:6}{note}")
        print(f"inspections   {sum(self.inspects.values())}")
        for kind, count in self.inspects.most_common():
            print(f"  {kind:36} {count:6}")
        print("refusals where the unmutated model is rewritten, by reason")
        for reason, count in self.reasons.most_common(40):
            print(f"  {count:6}  {reason}")
        print("mutations: fired · unproven (faults of the mutator) · in refused rewrites · in findings that are less and say so")
        for name in sorted(TABLE):
            print(f"  {name:30} {self.fired[name]:6} {self.unproven[name]:6} {self.blamed[name]:6} {self.warned[name]:6}")
        for name, place in list(self.examples.items())[:40]:
            print(f"  unproven: {name} {place}")
        for path, why in self.skipped.items():
            print(f"  left out: {os.path.relpath(path, ROOT)}: {why}")
        print("failures, shrunk: count · class · mutations · asked · first model · what")
        for (kind, names), (asked, first) in sorted(self.failures.items(), key=lambda f: -f[1][0].total()):
            most = ", ".join(f"{a} {n}" for a, n in asked.most_common(4))
            print(f"  {asked.total():5}  {kind} · {' + '.join(names)} · {most} · {first['model']} · {first['detail'][:300]}")


def keep(failure, folder):
    """Writes a failure so that `--replay` runs it again."""
    os.makedirs(folder, exist_ok=True)
    failure = failure | {"detail": re.sub(r"(?<!\w)/\S*/", "", failure["detail"])}  # no folder of this machine
    text = json.dumps(failure, indent=1, ensure_ascii=False) + "\n"
    names = "-".join(sorted({s["mutation"] for s in failure["steps"]}))[:80]
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    with open(os.path.join(folder, f"{failure['class'].replace(' ', '-')}-{names}-{digest}.json"), "w") as f:
        f.write(text)


def unmended(options):
    """The names of the kept failures that are listed as open."""
    if not options.open:
        return []
    with open(options.open) as f:
        return [line.strip() for line in f if line.strip() and not line.startswith("#")]


def left_out(options):
    """The mutations of open failures."""
    names = set()
    for name in unmended(options):
        with open(os.path.join(os.path.dirname(options.open), name)) as f:
            names.update(step["mutation"] for step in json.load(f)["steps"])
    return names


def replay(options):
    """Runs kept failures; 1 if one fails that is not open, or an open one holds."""
    files = [options.replay] if os.path.isfile(options.replay) else sorted(
        os.path.join(options.replay, f) for f in os.listdir(options.replay) if f.endswith(".json"))
    bad, unexpected = 0, 0
    listed = unmended(options)
    for file in files:
        with open(file) as f:
            kept = json.load(f)
        chosen = subject(os.path.join(ROOT, kept["model"]), options)
        if isinstance(chosen, str):
            print(f"skipped    {os.path.basename(file)}: {chosen}")
            continue
        kind, detail = check.judge(chosen, [Step(**s) for s in kept["steps"]], kept["command"])
        wrong = kind is None or kind in check.FAILURES
        bad += wrong
        name = os.path.basename(file)
        surprise = wrong != (name in listed)
        unexpected += surprise
        mark = {(True, True): "FAILS", (True, False): "open", (False, True): "MENDED", (False, False): "holds"}[wrong, surprise]
        print(f"{mark:6} {name}: {kind or 'the steps do not hold'} {detail[:160]}")
    print(f"{len(files)} kept, {bad} fail, {len(listed)} listed as open")
    if unexpected:
        print("a kept failure that is mended has to leave the list of open ones; one that fails again has to be mended")
    return 1 if unexpected else 0


def main():
    """Runs cases until the time or the number is reached."""
    options = arguments()
    options.names = [n for n in TABLE if not options.mutations or n in options.mutations.split(",")]
    options.names = [n for n in options.names if n not in left_out(options)]
    with tempfile.TemporaryDirectory(prefix="metamorphic-") as options.work:
        if options.replay:
            return replay(options)
        if options.seconds is None and options.rewrites is None:
            options.seconds = 120.0
        totals, said = Totals(options), time.time()
        work = jobs(models(options.models), options)
        pool = multiprocessing.Pool(options.jobs) if options.jobs > 1 else None
        while True:
            batch = [next(work) for _ in range(4 * options.jobs)]
            for report in (pool.map(case, batch, 1) if pool else map(case, batch)):
                totals.add(report)
            done = sum(totals.classes.values())
            if time.time() - said > 30:
                said = time.time()
                print(f"{done} rewrites, {sum(c.total() for c, _ in totals.failures.values())} failures", file=sys.stderr, flush=True)
            if options.rewrites is not None and done >= options.rewrites:
                break
            if options.seconds is not None and time.time() - totals.begin > options.seconds:
                break
        if pool:
            pool.terminate()
        totals.print()
        return 1 if totals.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
