// The page: files come in, reports and results go out.

import { Calls, Refused } from "./calls.js";
import { byId, el } from "./dom.js";
import { around, chosen, dropped, models } from "./files.js";
import { Form } from "./form.js";
import { shown as found } from "./found.js";
import type { Named } from "./messages.js";
import { shown as result } from "./result.js";

const status = byId("status", HTMLElement);
const problem = byId("problem", HTMLElement);
const refusal = byId("refusal", HTMLElement);
const drop = byId("drop", HTMLElement);
const files = byId("files", HTMLInputElement);
const choice = byId("choice", HTMLElement);
const picker = byId("model", HTMLSelectElement);
const change = byId("change", HTMLElement);
const withConfig = byId("with-config", HTMLElement);
const go = byId("go", HTMLButtonElement);
const foundPlace = byId("found", HTMLElement);
const resultPlace = byId("result", HTMLElement);

const calls = new Calls(say);
let form: Form | undefined;
/** What was given last; work on anything else is of no interest any more. */
let given: Named[] = [];
let name = "";

function say(text: string, isBusy = true): void {
  status.textContent = text;
  status.classList.toggle("busy", isBusy);
}

/** Shows why something failed, with the exit code that the command line would have. */
function fail(place: HTMLElement, error: unknown): void {
  say("", false);
  const sentence = error instanceof Error ? error.message : String(error);
  const shown = el("div", { class: "problem" }, el("p", {}, sentence));
  if (error instanceof Refused) {
    shown.append(el("p", { class: "soft" }, `Exit code ${error.problem.exit} on the command line.`));
  }
  place.replaceChildren(shown);
}

function forget(): void {
  for (const url of resultPlace.querySelectorAll<HTMLAnchorElement>("a[download]")) URL.revokeObjectURL(url.href);
  resultPlace.replaceChildren();
  refusal.replaceChildren();
}

async function take(all: Named[]): Promise<void> {
  if (all.length === 0) return;
  calls.cancel();
  given = all;
  const candidates = models(all);
  choice.hidden = candidates.length < 2;
  picker.replaceChildren(...candidates.map(({ path }) => el("option", { value: path }, path)));
  const first = candidates[0];
  if (first) {
    await open(first);
    return;
  }
  clear();
  fail(problem, new Error(`None of the ${all.length} files is named .onnx; give the model, or only one file.`));
}

function clear(): void {
  forget();
  problem.replaceChildren();
  foundPlace.replaceChildren();
  change.hidden = true;
}

async function open(model: Named): Promise<void> {
  const all = given;
  clear();
  const { files, config } = around(model, all);
  name = files[0]?.path ?? model.path;
  say(`Reading ${name}`);
  try {
    form ??= new Form(await calls.options());
    const started = performance.now();
    const { found: report, unread } = await calls.open(files);
    if (all !== given) return;
    form.setConfig(config);
    withConfig.hidden = config === undefined;
    const shown = found(name, report, unread);
    foundPlace.replaceChildren(shown);
    change.hidden = false;
    say(`${name} was inspected in ${seconds(performance.now() - started)}.`, false);
    // What was chosen stays in view: what was found is below it.
    focus(shown, true);
  } catch (error) {
    if (all === given) fail(problem, error);
  }
}

async function rewrite(): Promise<void> {
  if (!form) return;
  const all = given;
  forget();
  const { options, files } = form.request();
  go.disabled = true;
  say("Rewriting the model");
  try {
    const started = performance.now();
    const done = await calls.rewrite(options, files);
    if (all !== given) return;
    const shown = result(name, done);
    resultPlace.replaceChildren(shown);
    say(`${name} was rewritten in ${seconds(performance.now() - started)}.`, false);
    focus(shown, false);
  } catch (error) {
    if (all === given) fail(refusal, error);
  } finally {
    go.disabled = false;
  }
}

function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}

/** Readers of a screen go on at what is new. */
function focus(section: HTMLElement, preventScroll: boolean): void {
  section.querySelector<HTMLElement>("h2")?.focus({ preventScroll });
}

if (location.protocol === "file:") {
  fail(problem, new Error("Browsers do not run this page from a file: serve its folder, as with `python3 -m http.server`."));
  files.disabled = true;
} else {
  files.addEventListener("change", () => void take(chosen(files.files ?? new DataTransfer().files)));
  picker.addEventListener("change", () => {
    const model = given.find(({ path }) => path === picker.value);
    if (model) {
      calls.cancel();
      void open(model);
    }
  });
  byId("form", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    void rewrite();
  });
  addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  addEventListener("dragleave", () => drop.classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer) void dropped(event.dataTransfer).then(take);
  });
}
