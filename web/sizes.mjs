// What the files of the page weigh: `node sizes.mjs FOLDER`. Fails where the first load, compressed by gzip
// as every server can, is more than 3 MB.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";

const MOST = 3_000_000;

const folder = process.argv[2];
const rows = readdirSync(folder).map((name) => {
  const bytes = readFileSync(join(folder, name));
  return [name, bytes.length, gzipSync(bytes, { level: 9 }).length, brotliCompressSync(bytes).length];
});
const sum = (i) => rows.reduce((all, row) => all + row[i], 0);
const total = ["first load", sum(1), sum(2), sum(3)];
for (const [name, ...sizes] of [["", "bytes", "gzip", "brotli"], ...rows, total]) {
  console.log(name.padEnd(14) + sizes.map((size) => String(size).padStart(11)).join(""));
}
if (total[2] > MOST) {
  console.error(`the first load has ${total[2]} bytes with gzip, more than ${MOST}`);
  process.exit(1);
}
