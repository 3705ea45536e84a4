#!/usr/bin/env python3
"""release.py pack FOLDER OUT | sums FOLDER

pack: a folder as a .tar.gz that is the same for the same contents: names are sorted, times and owners left out.
sums: SHA256SUMS of the files of a folder, as `sha256sum --check` reads it.
"""

import gzip
import hashlib
import pathlib
import sys
import tarfile

SUMS = "SHA256SUMS"


def pack(folder, out):
    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with open(out, "wb") as raw, gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as packed:
        with tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as archive:
            for path in [folder, *sorted(folder.rglob("*"))]:
                archive.add(path, path.relative_to(folder.parent).as_posix(), recursive=False, filter=plain)


def sums(folder):
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))
    for path in files:
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path}")


if __name__ == "__main__":
    task, *paths = sys.argv[1:]
    {"pack": pack, "sums": sums}[task](*map(pathlib.Path, paths))
