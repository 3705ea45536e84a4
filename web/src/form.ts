// The form of a rewrite, made of the options that the library declares.

import { byId, details, el } from "./dom.js";
import type { Given, Option } from "./messages.js";

/** What the form asks for. */
export interface Request {
  options: Record<string, unknown>;
  files: Given[];
}

/** An option with its element in the form. */
interface Field {
  option: Option;
  whole: HTMLElement;
  input: HTMLInputElement | HTMLSelectElement;
}

export class Form {
  private readonly fields: Field[];

  constructor(options: Option[]) {
    this.fields = options.map(field);
    const of = (keep: (option: Option) => boolean) =>
      this.fields.filter(({ option }) => keep(option)).map(({ whole }) => whole);
    const isMain = ({ name }: Option) => name === "to" || name === "scale";
    const isShared = ({ laws, families }: Option) => laws.length + families.length === 0;
    const isValue = ({ takes }: Option) => takes === "number" || takes === "count";
    const group = (legend: string, fields: HTMLElement[]) =>
      el("fieldset", {}, el("legend", {}, legend), el("div", { class: "fields" }, ...fields));
    byId("options", HTMLElement).replaceChildren(
      group("Encoding", of(isMain)),
      group("Values", of((o) => !isMain(o) && (!isShared(o) || isValue(o)))),
      details("More options", group("More options", of((o) => !isMain(o) && isShared(o) && !isValue(o)))),
    );
    for (const { option, input } of this.fields) {
      if (isMain(option)) input.addEventListener("change", () => this.update());
    }
    this.update();
  }

  /** Shows the parameters of what is chosen, and hides those of everything else. */
  private update(): void {
    const to = this.value("to");
    const scale = this.value("scale");
    for (const { option, whole } of this.fields) {
      const { laws, families } = option;
      const isShown = laws.length + families.length === 0 || laws.includes(scale) || families.includes(to);
      whole.hidden = !isShown;
    }
  }

  private value(name: string): string {
    return this.fields.find(({ option }) => option.name === name)?.input.value ?? "";
  }

  /** The config of the model as it is, which was dropped with it. */
  setConfig(config: File | undefined): void {
    const input = this.fields.find(({ option }) => option.name === "model_config")?.input;
    if (!(input instanceof HTMLInputElement)) return;
    const files = new DataTransfer();
    if (config) files.items.add(config);
    input.files = files.files;
  }

  /** What is given; a number that is none stays text, which the library refuses by name. */
  request(): Request {
    const request: Request = { options: {}, files: [] };
    for (const { option, whole, input } of this.fields) {
      if (whole.hidden) continue;
      if (option.takes === "file") {
        const file = (input as HTMLInputElement).files?.[0];
        if (file) request.files.push({ option: option.name, file });
        continue;
      }
      const value = given(option, input);
      if (value !== undefined) request.options[option.name] = value;
    }
    return request;
  }
}

function given(option: Option, input: HTMLInputElement | HTMLSelectElement): unknown {
  if (option.takes === "switch") return (input as HTMLInputElement).checked || undefined;
  const text = input.value.trim();
  if (text === "") return undefined;
  const number = (part: string) => (part.trim() === "" || Number.isNaN(Number(part)) ? part : Number(part));
  switch (option.takes) {
    case "number":
    case "count":
      return number(text);
    case "numbers":
      return text.split(/[\s,]+/).map(number);
    case "bool":
      return text === "yes";
    case "roles":
      return Object.fromEntries(text.split(/[\s,]+/).map((pair) => pair.split("=", 2)));
    default:
      return text;
  }
}

function field(option: Option): Field {
  const id = `option-${option.name}`;
  const help = el("p", { class: "help", id: `${id}-help` }, about(option));
  const input = control(option);
  input.id = id;
  input.name = option.name;
  input.setAttribute("aria-describedby", help.id);
  const label = el("label", { for: id }, option.label);
  if (option.takes === "switch") label.prepend(input);
  const whole = el("div", { class: "field" }, label);
  if (option.takes !== "switch") whole.append(input);
  whole.append(help);
  return { option, whole, input };
}

function about({ help, default: value, takes, words }: Option): string {
  const parts = [help];
  if (takes === "roles") parts.push(`as name=role; roles are ${words.map(([word]) => word).join(", ")}`);
  if (takes === "numbers") parts.push("numbers with commas between them");
  if (value) parts.push(`default: ${value}`);
  return parts.join("; ");
}

function control(option: Option): HTMLInputElement | HTMLSelectElement {
  const choice = ([word, about]: [string, string]) => el("option", { value: word }, about ? `${word}: ${about}` : word);
  switch (option.takes) {
    case "word":
      return el("select", {}, el("option", { value: "" }, option.name === "to" ? "as it is" : "not given"), ...option.words.map(choice));
    case "bool":
      return el("select", {}, el("option", { value: "" }, "default"), choice(["yes", ""]), choice(["no", ""]));
    case "switch":
      return el("input", { type: "checkbox" });
    case "file":
      return el("input", { type: "file" });
    case "number":
    case "count":
      return el("input", { type: "text", inputmode: "decimal", autocomplete: "off" });
    default:
      return el("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  }
}
