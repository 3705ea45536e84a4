#!/usr/bin/env python3
"""licences.py PACKAGE TARGET OUT: writes the licences of everything that PACKAGE is built from for TARGET into OUT.

Texts that several crates share are printed once. A crate without a licence in its manifest is an error; one without
a file of its licence is listed with the name of the licence.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys

NAMES = ("licen", "copying", "notice", "unlicense")


def main():
    package, target, out = sys.argv[1:]
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    crates = sorted(built(metadata, package), key=lambda crate: (crate["name"], crate["version"]))
    unnamed = [crate["name"] for crate in crates if not (crate["license"] or crate["license_file"])]
    if unnamed:
        sys.exit(f"no licence is declared by {', '.join(unnamed)}")
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
