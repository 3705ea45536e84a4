// A visit to the page: what it shows, what it asks for, and what it complains about.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** Opens the page in a window of its own. */
export async function visit(browser, origin, theme = "light") {
  const context = await browser.newContext({ colorScheme: theme, viewport: { width: 1000, height: 900 } });
  const page = await context.newPage();
  const complaints = [];
  const elsewhere = [];
  const watch = (url) => {
    if (!url.startsWith(`${origin}/`) && !url.startsWith(`blob:${origin}/`) && !url.startsWith("data:")) {
      elsewhere.push(url);
    }
  };
  context.on("request", (request) => watch(request.url()));
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(`${origin}/index.html`);
  return new Visit(context, page, complaints, elsewhere);
}

class Visit {
  constructor(context, page, complaints, elsewhere) {
    Object.assign(this, { context, page, complaints, elsewhere });
  }

  /** Gives files, and waits until they are shown or refused. */
  async give(...files) {
    await this.page.setInputFiles("#files", files);
    await this.page.waitForFunction(
      () => document.querySelector("#model-found, #problem p") && !document.querySelector("#status.busy"),
      undefined,
      { timeout: 120_000 },
    );
  }

  /** Fills in the form, and waits for a result or a refusal. */
  async rewrite(values) {
    for (const [name, value] of Object.entries(values)) {
      const field = this.page.locator(`#option-${name}`);
      if (await field.evaluate((input) => input.tagName === "SELECT")) await field.selectOption(value);
      else await field.fill(value);
    }
    await this.page.click("#go");
    await this.page.waitForFunction(
      () => document.querySelector("#model-result, #refusal p") && !document.querySelector("#status.busy"),
      undefined,
      { timeout: 120_000 },
    );
  }

  text(selector) {
    return this.page.locator(selector).innerText();
  }

  /** The sentence that refuses a model or a request. */
  refusal(place = "#problem") {
    return this.text(`${place} .problem p:first-child`);
  }

  /** The bytes of the file that the first link of the result gives. */
  async download() {
    const [download] = await Promise.all([
      this.page.waitForEvent("download"),
      this.page.click("#model-result a.download >> nth=0"),
    ]);
    return { name: download.suggestedFilename(), bytes: await readFile(await download.path()) };
  }

  /** Findings of axe that keep people from using the page. */
  async barriers() {
    // The policy of the page allows no script of others; this one is evaluated by the driver.
    await this.page.evaluate(await readFile(axe, "utf8"));
    const { violations } = await this.page.evaluate(() => globalThis.axe.run());
    const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
    return grave.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ").slice(0, 300)}`);
  }

  close() {
    return this.context.close();
  }
}
