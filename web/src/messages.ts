// What the page and its worker tell each other.

/** A file with its path relative to the model. */
export interface Named {
  path: string;
  file: File;
}

/** A file that an option takes. */
export interface Given {
  option: string;
  file: File;
}

export type Ask =
  | { ask: "options" }
  /** The first file is the model; the others may hold its tensors. */
  | { ask: "open"; files: Named[] }
  | { ask: "rewrite"; options: Record<string, unknown>; files: Given[] };

export type Answer =
  | { answer: "progress"; text: string }
  | { answer: "options"; options: Option[] }
  | { answer: "found"; found: Found; unread: string[] }
  | { answer: "result"; result: Result; bytes: ArrayBuffer | null; config: string | null }
  | { answer: "problem"; problem: Problem }
  /** The module cannot be used any more. */
  | { answer: "broken"; text: string };

/** An error: the exit code of the command line for it, and its sentence. */
export interface Problem {
  exit: number;
  sentence: string;
}

/** An option of a rewrite. */
export interface Option {
  name: string;
  label: string;
  takes: "word" | "roles" | "number" | "count" | "numbers" | "switch" | "bool" | "text" | "file";
  /** Words with what they mean. */
  words: [string, string][];
  help: string;
  default: string;
  /** The laws of RoPE that have it; empty where it is for other requests. */
  laws: string[];
  families: string[];
}

export interface Cell {
  text: string;
  ok: boolean | null;
}

export interface Table {
  headings: { name: string; number: boolean }[];
  rows: Cell[][];
}

/** What was found in a model. */
export interface Found {
  facts: string[];
  fingerprint: string;
  encodings: Table;
  notes: string[];
  attention: Table;
  limits: Table;
  refused: Table;
  warnings: string[];
  /** Drawings as fragments of HTML. */
  figures: string[];
  missing: string[];
}

/** What a rewrite did. */
export interface Result {
  name: string;
  inferred: Table;
  edits: Table;
  counts: string;
  limits: [Table, Table];
  guarantee: string;
  meaning: string | null;
  warnings: string[];
  check: string | null;
  ok: boolean;
  proof: { ran: string[]; left: string[]; sites: Table };
  difference: string;
  figures: string[];
  /** The files that hold tensors of the result. */
  external: string[];
}
