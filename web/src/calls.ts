// Calls to the worker, one at a time. A worker that broke is replaced.

import type { Answer, Ask, Found, Given, Named, Option, Problem, Result } from "./messages.js";

/** What the worker refused. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.sentence);
  }
}

/** A result with its file. */
export interface Rewritten {
  result: Result;
  bytes: ArrayBuffer | null;
  config: string | null;
}

export class Calls {
  private worker: Worker | undefined;
  /** Ends the call that waits for an answer. */
  private abandon: ((why: Error) => void) | undefined;
  private opened: Named[] = [];
  private isOpen = false;

  constructor(private readonly progress: (text: string) => void) {}

  async options(): Promise<Option[]> {
    return (await this.call({ ask: "options" }, "options")).options;
  }

  async open(files: Named[]): Promise<{ found: Found; unread: string[] }> {
    this.opened = files;
    this.isOpen = false;
    const found = await this.call({ ask: "open", files }, "found");
    this.isOpen = true;
    return found;
  }

  async rewrite(options: Record<string, unknown>, files: Given[]): Promise<Rewritten> {
    // The worker may be another one than that which opened the model.
    if (!this.isOpen) await this.open(this.opened);
    return this.call({ ask: "rewrite", options, files }, "result");
  }

  /** Gives up what is being done, if anything is. */
  cancel(): void {
    if (!this.abandon) return;
    this.abandon(new Error("It was given up for another model."));
    this.replace();
  }

  /** The next call starts another worker. */
  private replace(): void {
    this.worker?.terminate();
    this.worker = undefined;
    this.abandon = undefined;
    this.isOpen = false;
  }

  private call<K extends Answer["answer"]>(ask: Ask, kind: K): Promise<Extract<Answer, { answer: K }>> {
    const worker = (this.worker ??= new Worker("worker.js"));
    return new Promise((resolve, reject) => {
      this.abandon = reject;
      worker.onerror = (event) => {
        this.replace();
        reject(new Error(event.message || "The worker of this page could not be started."));
      };
      worker.onmessage = ({ data }: MessageEvent<Answer>) => {
        switch (data.answer) {
          case "progress":
            this.progress(data.text);
            return;
          case "problem":
            this.abandon = undefined;
            reject(new Refused(data.problem));
            return;
          case "broken":
            this.replace();
            reject(new Error(data.text));
            return;
          default:
            if (data.answer !== kind) return;
            this.abandon = undefined;
            resolve(data as Extract<Answer, { answer: K }>);
        }
      };
      worker.postMessage(ask);
    });
  }
}
