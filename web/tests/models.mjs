// A large graph: a model with nodes added to it, or one of its tensors in another file. What it takes of protobuf is here.

/** The model with so many more nodes behind its first output. */
export function enlarged(model, nodes) {
  const graph = fields(model).find(({ number }) => number === 7);
  const inside = model.subarray(graph.start, graph.end);
  const output = fields(inside).find(({ number }) => number === 12);
  const of = inside.subarray(output.start, output.end);
  const named = fields(of).find(({ number }) => number === 1);
  let last = of.subarray(named.start, named.end).toString();
  const parts = [inside];
  for (let i = 0; i < nodes; i++) {
    const next = `more_${i}`;
    parts.push(field(1, Buffer.concat([field(1, last), field(2, next), field(4, "Relu")])));
    last = next;
  }
  const whole = field(7, Buffer.concat(parts));
  return Buffer.concat([model.subarray(0, graph.from), whole, model.subarray(graph.end)]);
}

/** The model with its largest tensor in a file of this name, and that file. */
export function split(model, name) {
  const graph = fields(model).find(({ number }) => number === 7);
  const inside = model.subarray(graph.start, graph.end);
  const raw = (tensor) => fields(inside.subarray(tensor.start, tensor.end)).find(({ number }) => number === 9);
  const size = (tensor) => (raw(tensor) ? raw(tensor).end - raw(tensor).start : 0);
  const tensors = fields(inside).filter(({ number }) => number === 5);
  const largest = tensors.reduce((a, b) => (size(b) > size(a) ? b : a));
  const tensor = inside.subarray(largest.start, largest.end);
  const { from, start, end } = raw(largest);
  const location = Buffer.concat([field(1, "location"), field(2, name)]);
  const outside = Buffer.concat([tensor.subarray(0, from), tensor.subarray(end), field(13, location), Buffer.from([14 << 3, 1])]);
  const parts = [inside.subarray(0, largest.from), field(5, outside), inside.subarray(largest.end)];
  const whole = field(7, Buffer.concat(parts));
  const rest = [model.subarray(0, graph.from), whole, model.subarray(graph.end)];
  return { model: Buffer.concat(rest), data: tensor.subarray(start, end) };
}

function field(number, content) {
  const bytes = Buffer.from(content);
  return Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);
}

function varint(n) {
  const bytes = [];
  for (; n > 127; n >>>= 7) bytes.push((n & 127) | 128);
  return Buffer.from([...bytes, n]);
}

/** The fields of a message: number, where they start, and the range of their content. */
function fields(bytes) {
  const all = [];
  let at = 0;
  const read = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return Number(value);
    }
  };
  while (at < bytes.length) {
    const from = at;
    const key = read();
    const wire = key & 7;
    if (wire === 0) read();
    const length = { 0: 0, 1: 8, 2: wire === 2 ? read() : 0, 5: 4 }[wire];
    all.push({ number: key >>> 3, from, start: at, end: at + length });
    at += length;
  }
  return all;
}
