// A static server for the page, with the policy as a header too, so that it holds for the worker.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { basename, extname, join } from "node:path";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };

/** Serves the files of a folder. `changed` may change the text of one, for a control. */
export async function serve(folder, changed = (_name, bytes) => bytes) {
  const index = await readFile(join(folder, "index.html"), "utf8");
  const policy = /http-equiv="Content-Security-Policy" content="([^"]+)"/.exec(index)[1];
  const server = createServer(async (request, response) => {
    const name = basename(new URL(request.url, "http://localhost").pathname) || "index.html";
    try {
      const bytes = changed(name, await readFile(join(folder, name)));
      const type = TYPES[extname(name)] ?? "application/octet-stream";
      response.writeHead(200, { "Content-Type": type, "Content-Security-Policy": policy });
      response.end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { origin: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}
