// The result of a rewrite: what was done, how it was shown to be right, and the files.

import type { Rewritten } from "./calls.js";
import { details, el, figures, list, paragraphs, section, table } from "./dom.js";

/** The most lines of a difference that are shown. */
const LINES = 2000;

/** The part of the page about a result. */
export function shown(original: string, { result, bytes, config }: Rewritten): HTMLElement {
  const whole = section("Result", "model-result");
  const verdict = result.ok ? "ok" : "fail";
  whole.append(el("p", {}, result.guarantee));
  if (result.meaning) whole.append(el("p", {}, result.meaning));
  whole.append(...paragraphs("warning", result.warnings));
  if (bytes) {
    whole.append(downloads(result.name, bytes, result.difference, config));
    if (result.external.length > 0) whole.append(el("p", {}, beside(result.external)));
  } else {
    whole.append(...paragraphs("problem", ["A check failed, so there is no file."]));
  }
  whole.append(
    el("h3", {}, "Edits"),
    el("p", {}, result.counts),
    table("Edits", result.edits, "none"),
  );
  if (result.inferred.rows.length > 0) whole.append(table("Inferred values", result.inferred, "none"));
  const [before, after] = result.limits;
  if (JSON.stringify(before) === JSON.stringify(after)) {
    whole.append(table("Limits of the length, unchanged", after, "none"));
  } else {
    whole.append(table("Limits before", before, "none"), table("Limits after", after, "none"));
  }
  if (result.figures.length > 0) whole.append(figures(result.figures));

  whole.append(el("h3", {}, "Proof"));
  if (result.check) whole.append(el("p", { class: verdict }, result.check));
  whole.append(list(result.proof.ran));
  if (result.proof.sites.rows.length > 0) {
    const sites = table("Each comparison with a formula", result.proof.sites, "none");
    whole.append(details("Each comparison", sites));
  }
  whole.append(
    ...result.proof.left.map((text) => el("p", {}, text)),
    el("p", {}, "The command line runs both models in a runtime:"),
    el("pre", {}, el("code", {}, `posenc-onnx verify ${result.name} ${original}`)),
  );

  whole.append(el("h3", {}, "Difference"), difference(result.difference));
  return whole;
}

function beside(files: string[]): string {
  return `The result names ${files.join(", ")}, as the model does: keep it in the same folder.`;
}

function downloads(name: string, bytes: ArrayBuffer, text: string, config: string | null): HTMLElement {
  const whole = el("p", { class: "downloads" });
  const add = (file: string, content: BlobPart, type: string) => {
    const href = URL.createObjectURL(new Blob([content], { type }));
    const style = whole.childElementCount === 0 ? "download" : "download second";
    whole.append(el("a", { href, download: file, class: style }, `Download ${file}`));
  };
  add(name, bytes, "application/octet-stream");
  if (config !== null) add("config.json", config, "application/json");
  if (text) add(`${name}.diff`, text, "text/plain");
  return whole;
}

function difference(text: string): HTMLElement {
  if (!text) return el("p", { class: "soft" }, "The models are the same.");
  const lines = text.trimEnd().split("\n");
  const names: Record<string, string> = { "+": "add", "-": "del", "@": "at" };
  const shown = lines.slice(0, LINES).map((line) => {
    const kind = /^(\+\+\+|---) /.test(line) ? "at" : names[line[0] ?? ""];
    return kind ? el("span", { class: kind }, `${line}\n`) : `${line}\n`;
  });
  const all = el("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": "Difference as ONNX text" });
  all.append(...shown);
  if (lines.length <= LINES) return all;
  const more = `The first ${LINES} of ${lines.length} lines; the whole difference can be downloaded.`;
  return el("div", {}, el("p", { class: "soft" }, more), all);
}
