// What was found in a model.

import { details, el, figures, paragraphs, section, table } from "./dom.js";
import type { Found } from "./messages.js";

/** The part of the page about a model. `unread` are files that were too large to be read. */
export function shown(name: string, found: Found, unread: string[]): HTMLElement {
  const whole = section(name, "model-found");
  whole.append(
    el("p", {}, found.facts.join(" · ")),
    ...paragraphs("warning", [...found.warnings, ...unread.map(tooLarge)]),
    table("Encodings", found.encodings, "none found"),
    ...found.notes.map((note) => el("p", { class: "soft" }, note)),
  );
  if (found.figures.length > 0) whole.append(figures(found.figures));
  whole.append(
    table("Limits of the length", found.limits, "none found"),
    table("Attention", found.attention, "none found"),
  );
  if (found.refused.rows.length > 0) {
    const rejected = table("Candidates that are no encodings, and why", found.refused, "none");
    whole.append(details("Rejected candidates", rejected));
  }
  whole.append(el("p", { class: "soft" }, "fingerprint ", el("code", {}, found.fingerprint)));
  return whole;
}

function tooLarge(path: string): string {
  return `${path} was not read, because it is too large for this page. What encodes positions is mostly in the graph.`;
}
