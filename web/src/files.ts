// Files that were chosen or dropped, and the model among them.

import type { Named } from "./messages.js";

/** The files of a file picker. */
export function chosen(files: FileList): Named[] {
  return [...files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

/** The files that were dropped, those of folders too. */
export async function dropped(transfer: DataTransfer): Promise<Named[]> {
  // Entries are gone once this function waits.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry());
  const all: Named[] = [];
  for (const entry of entries) if (entry) await walk(entry, all);
  return all.length > 0 ? all : chosen(transfer.files);
}

async function walk(entry: FileSystemEntry, into: Named[]): Promise<void> {
  const path = entry.fullPath.replace(/^\//, "");
  if (isFile(entry)) {
    into.push({ path, file: await new Promise<File>((resolve, reject) => entry.file(resolve, reject)) });
  } else if (isFolder(entry)) {
    const reader = entry.createReader();
    // Each call gives some of the entries; none, when there are no more.
    for (;;) {
      const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (some.length === 0) break;
      for (const inner of some) await walk(inner, into);
    }
  }
}

function isFile(entry: FileSystemEntry): entry is FileSystemFileEntry {
  return entry.isFile;
}

function isFolder(entry: FileSystemEntry): entry is FileSystemDirectoryEntry {
  return entry.isDirectory;
}

/** The files that may be models: a single file may have any name. */
export function models(all: Named[]): Named[] {
  const named = all.filter(({ path }) => path.toLowerCase().endsWith(".onnx"));
  return named.length === 0 && all.length === 1 ? all : named;
}

/** What belongs to a model: the files of its folder, by their paths in it, and the config next to it. */
export function around(model: Named, all: Named[]): { files: Named[]; config: File | undefined } {
  const folder = model.path.slice(0, model.path.lastIndexOf("/") + 1);
  const own = ({ path }: Named) => path.slice(folder.length);
  const inside = all.filter((named) => named !== model && named.path.startsWith(folder));
  const config = inside.find((named) => own(named) === "config.json")?.file;
  const files = [model, ...inside].map((named) => ({ path: own(named), file: named.file }));
  return { files, config };
}
