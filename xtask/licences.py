#!/usr/bin/env python3
"""licences.py PACKAGE TARGET OUT: writes the licences of everything that PACKAGE is built from for TARGET into OUT.

Texts that several crates share are printed once. A crate whose licence deny.toml does not allow is an error; one
without a file of its licence is listed with the name of the licence.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

NAMES = ("licen", "copying", "notice", "unlicense")


def main():
    package, target, out = sys.argv[1:]
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    crates = sorted(built(metadata, package), key=lambda crate: (crate["name"], crate["version"]))
    known = allowed(pathlib.Path(metadata["workspace_root"]) / "deny.toml")
    refused = [title(crate) for crate in crates if not allows(known, crate["license"] or "")]
    if refused:
        sys.exit(f"deny.toml allows no licence of {', '.join(refused)}")
    texts = collections.defaultdict(list)
    without = []
    for crate in crates:
        own = list(files(crate))
        if not own:
            without.append(title(crate))
        for path in own:
            texts[path.read_text(encoding="utf-8", errors="replace").strip()].append(title(crate))
    with open(out, "w", encoding="utf-8") as file:
        file.write(f"{package} is built from {len(crates)} other packages, with these licences.\n")
        if without:
            file.write("\nWithout a file of their licence:\n" + "".join(f"  {name}\n" for name in without))
        for text, owners in texts.items():
            file.write(f"\n{'=' * 80}\n" + "".join(f"{owner}\n" for owner in owners) + f"{'-' * 80}\n{text}\n")
    print(f"{out}: {len(crates)} packages, {len(texts)} texts, {len(without)} packages without a text")


def built(metadata, package):
    """The packages from elsewhere that a package is built from, without those for tests and for building alone."""
    packages = {one["id"]: one for one in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    first = next(one["id"] for one in metadata["packages"] if one["name"] == package and one["source"] is None)
    seen, todo = set(), [first]
    while todo:
        node = nodes[todo.pop()]
        for dependency in node["deps"]:
            is_part = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_part and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    return [packages[one] for one in seen if packages[one]["source"]]


def allowed(path):
    """The licences that a configuration of cargo-deny allows."""
    listed = re.search(r"^allow = \[(.*?)^\]", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return set(re.findall(r'"([^"]+)"', listed[1]))


def allows(known, expression):
    """Whether an SPDX expression can be met with these licences. `/` is an old spelling of OR."""
    words = re.findall(r"[()]|[^\s()/]+", expression.replace("/", " OR "))

    def either():
        found = both()
        while words[:1] == ["OR"]:
            words.pop(0)
            # Both sides are read, whatever the first one is.
            found = both() or found
        return found

    def both():
        found = one()
        while words[:1] == ["AND"]:
            words.pop(0)
            found = one() and found
        return found

    def one():
        if not words:
            return False
        word = words.pop(0)
        if word == "(":
            found = either()
            words.pop(0)
            return found
        if words[:1] == ["WITH"]:
            word = f"{word} WITH {words[1]}"
            del words[:2]
        return word in known

    return either()


def files(crate):
    """The files of its licences."""
    folder = pathlib.Path(crate["manifest_path"]).parent
    found = {path for path in folder.iterdir() if path.is_file() and path.name.lower().startswith(NAMES)}
    if crate["license_file"]:
        found.add(folder / crate["license_file"])
    return sorted(found)


def title(crate):
    return f"{crate['name']} {crate['version']} ({crate['license'] or 'its own licence'})"


if __name__ == "__main__":
    main()
