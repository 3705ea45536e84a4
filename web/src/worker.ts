// Runs the library beside the page, so that the page answers while it works.

import init, { Files, Work, options } from "../wasm/posenc_web.js";
import type { Answer, Ask, Given, Named, Problem } from "./messages.js";

/** The most bytes that are read: the memory of the module ends at 4 GiB, and a rewrite needs some too. */
const MOST = 1 << 30;

declare const self: {
  posencPanicked?: (text: string) => void;
  onmessage: ((event: MessageEvent<Ask>) => void) | null;
  postMessage(answer: Answer, moved?: Transferable[]): void;
};

let panicked = "";
self.posencPanicked = (text) => {
  panicked = text;
};

let ready: Promise<unknown> | undefined;
let work: Work | undefined;

self.onmessage = async ({ data }) => {
  try {
    ready ??= init({ module_or_path: "posenc.wasm" });
    await ready;
    await answer(data);
  } catch (error) {
    self.postMessage(failed(error));
  }
};

async function answer(ask: Ask): Promise<void> {
  switch (ask.ask) {
    case "options":
      self.postMessage({ answer: "options", options: JSON.parse(options()) });
      return;
    case "open": {
      work?.free();
      work = undefined;
      const { files, unread } = await model(ask.files);
      progress("Inspecting the model");
      work = new Work(files);
      self.postMessage({ answer: "found", found: JSON.parse(work.inspect()), unread });
      return;
    }
    case "rewrite": {
      if (!work) throw new Error("no model is open");
      const files = await given(ask.files);
      progress("Rewriting the model and comparing the result");
      const names = ask.files.map((file) => file.option);
      const result = JSON.parse(work.rewrite(JSON.stringify(ask.options), names, files));
      const bytes = (work.bytes()?.buffer as ArrayBuffer | undefined) ?? null;
      const config = work.config() ?? null;
      self.postMessage({ answer: "result", result, bytes, config }, bytes ? [bytes] : []);
    }
  }
}

/** Reads the model and the files of its tensors, as far as there is space, and names the rest. */
async function model(all: Named[]): Promise<{ files: Files; unread: string[] }> {
  const [first, ...data] = all;
  if (!first) throw new Error("no file is given");
  if (first.file.size > MOST) {
    const size = `${first.file.size} bytes, more than the ${MOST} that this page reads`;
    refuse(4, `${first.path}: it has ${size}; use posenc-onnx on the command line`);
  }
  const files = new Files();
  const unread: string[] = [];
  let left = MOST - first.file.size;
  await read(files, first.path, first.file);
  const wanted = new Set(data.length > 0 ? files.data_files() : []);
  for (const { path, file } of data) {
    if (!wanted.has(path)) continue;
    if (file.size > left) {
      unread.push(path);
      continue;
    }
    left -= file.size;
    await read(files, path, file);
  }
  return { files, unread };
}

async function given(all: Given[]): Promise<Files> {
  const files = new Files();
  for (const { file } of all) {
    if (file.size > MOST) refuse(2, `${file.name}: it has ${file.size} bytes, more than this page reads`);
    await read(files, file.name, file);
  }
  return files;
}

/** Copies a file into the memory of the module, piece by piece. */
async function read(into: Files, name: string, file: File): Promise<void> {
  progress(`Reading ${name}`);
  into.begin(name, file.size);
  const reader = file.stream().getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    into.push(value);
  }
}

function progress(text: string): void {
  self.postMessage({ answer: "progress", text });
}

function refuse(exit: number, sentence: string): never {
  throw JSON.stringify({ exit, sentence } satisfies Problem);
}

function failed(error: unknown): Answer {
  // Refusals of the library are JSON.
  if (typeof error === "string") return { answer: "problem", problem: JSON.parse(error) };
  if (error instanceof RangeError) {
    const text = "The model is nested more deeply than this browser can follow; use posenc-onnx on the command line.";
    return { answer: "broken", text };
  }
  if (error instanceof WebAssembly.RuntimeError) {
    const why = panicked || "there is no memory left, or the module stopped";
    return { answer: "broken", text: `This is a bug of posenc-onnx, please report it with the model: ${why}` };
  }
  const why = error instanceof Error ? error.message : String(error);
  return { answer: "broken", text: `The library could not be started: ${why}. Reload the page.` };
}
