// Elements.

import type { Table } from "./messages.js";

/** The most rows of a table that are shown. */
const ROWS = 500;

type Child = Node | string;

/** An element with attributes and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** The element of the page with this id. */
export function byId<T extends HTMLElement>(id: string, kind: new () => T): T {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no ${id}`);
  return element;
}

/** A section with a heading, which names it. */
export function section(heading: string, id: string): HTMLElement {
  const title = el("h2", { id: `${id}-heading`, tabindex: "-1" }, heading);
  return el("section", { id, "aria-labelledby": title.id }, title);
}

/** A table with a caption, or what to say where it has no rows. */
export function table(caption: string, data: Table, empty: string): HTMLElement {
  if (data.rows.length === 0) return el("p", { class: "soft" }, `${caption}: ${empty}`);
  const cells = (row: Table["rows"][number]) =>
    row.map((cell, i) => {
      const classes = { "true": "ok", "false": "fail", "null": data.headings[i]?.number ? "n" : "" };
      const name = classes[String(cell.ok) as keyof typeof classes];
      return el("td", name ? { class: name } : {}, cell.text);
    });
  const headings = data.headings.map(({ name, number }) =>
    name === ""
      ? el("td")
      : el("th", number ? { scope: "col", class: "n" } : { scope: "col" }, name),
  );
  const more = data.rows.length - ROWS;
  const shown = more > 0 ? `${caption} (the first ${ROWS} of ${data.rows.length})` : caption;
  // Wide tables scroll, by keys too.
  return el(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", {}, shown),
      el("thead", {}, el("tr", {}, ...headings)),
      el("tbody", {}, ...data.rows.slice(0, ROWS).map((row) => el("tr", {}, ...cells(row)))),
    ),
  );
}

/** Drawings: fragments of HTML that the library made, in which names are escaped. */
export function figures(all: string[]): HTMLElement {
  const whole = el("div", { class: "figures" });
  whole.innerHTML = all.join("");
  return whole;
}

export function paragraphs(className: string, texts: string[]): HTMLElement[] {
  return texts.map((text) => el("div", { class: className }, el("p", {}, text)));
}

export function list(texts: string[]): HTMLElement {
  return el("ul", {}, ...texts.map((text) => el("li", {}, text)));
}

/** What is shown on request. */
export function details(summary: string, ...children: Child[]): HTMLElement {
  return el("details", {}, el("summary", {}, summary), ...children);
}
