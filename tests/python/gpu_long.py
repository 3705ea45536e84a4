"""Cosines and sines of 131,072 tokens, against formulas in f64 that share no code with the tool."""

import math

import numpy

LENGTH, ORIGINAL, FACTOR, BASE = 131_072, 8192, 16.0, 10_000.0
# An angle of f32 is off by half its last digit, and so is the frequency that it is computed of.
BOUND = 2 * (LENGTH * 2.0**-24) + 2.0**-23


def frequencies(scaling, dim, factor=FACTOR):
    """Inverse frequencies of a scaling at `LENGTH` tokens, and the factor on cosine and sine."""
    power = numpy.arange(0, dim, 2, dtype=numpy.float64) / dim
    plain = BASE**-power
    if scaling == "linear":
        return plain / factor, 1.0
    if scaling == "ntk":
        return (BASE * factor ** (dim / (dim - 2))) ** -power, 1.0
    if scaling == "dynamic":
        stretched = factor * LENGTH / ORIGINAL - (factor - 1)
        return (BASE * stretched ** (dim / (dim - 2))) ** -power, 1.0
    if scaling == "llama3":
        turns = ORIGINAL * plain / (2 * math.pi)
        smooth = numpy.clip((turns - 1.0) / (4.0 - 1.0), 0.0, 1.0)
        return (1 - smooth) * plain / factor + smooth * plain, 1.0
    if scaling == "longrope":
        divisors = 1 + numpy.arange(dim // 2) / 2
        return plain / divisors, math.sqrt(1 + math.log(factor) / math.log(ORIGINAL))
    assert scaling == "yarn", scaling
    turn = lambda turns: dim * math.log(ORIGINAL / (turns * 2 * math.pi)) / (2 * math.log(BASE))
    low, high = max(math.floor(turn(32)), 0), min(math.ceil(turn(1)), dim - 1)
    ramp = numpy.clip((numpy.arange(dim // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
    return plain / factor * ramp + plain * (1 - ramp), 0.1 * math.log(factor) + 1.0


def tables(path, provider):
    """What the graph multiplies queries with: its cosines and sines, factors included."""
    import onnx
    from gpu import session

    model = onnx.load(path)
    constants = {t.name for t in model.graph.initializer}
    users = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    found = {}
    for node in model.graph.node:
        if node.op_type in ("Cos", "Sin"):
            name = node.output[0]
            scaled = [u for u in users[name] if u.op_type == "Mul" and constants & set(u.input)]
            found[node.op_type] = scaled[0].output[0] if len(scaled) == len(users[name]) else name
    typed = {value.name for value in model.graph.value_info}
    for name in set(found.values()) - typed:
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    inputs = [i.name for i in model.graph.input]
    part = onnx.utils.Extractor(model).extract_model(inputs, list(found.values()))
    used = {name for node in part.graph.node for name in node.input}
    for value in [i for i in part.graph.input if i.name not in used]:
        part.graph.input.remove(value)
    out = path.with_suffix(".tables.onnx")
    onnx.save(part, out)
    loaded = session(out, provider)
    ids = numpy.ones((1, LENGTH), dtype=numpy.int64)
    got = loaded.run(list(found.values()), {i.name: ids for i in loaded.get_inputs()})
    return dict(zip(found, (v.astype(numpy.float64).reshape(LENGTH, -1) for v in got)))


def distance(got, scaling, dim, factor=FACTOR):
    rates, scale = frequencies(scaling, dim, factor)
    angles = numpy.arange(LENGTH, dtype=numpy.float64)[:, None] * rates
    want = {"Cos": numpy.cos(angles) * scale, "Sin": numpy.sin(angles) * scale}
    return max(float(numpy.abs(got[k][:, : dim // 2] - want[k]).max()) for k in want)


def rows(check, bundle, provider):
    found = []
    for scaling in ("linear", "ntk", "dynamic", "yarn", "llama3", "longrope"):
        for dtype in ("float32", "float16", "bfloat16"):
            row = {"part": "131,072 tokens", "name": f"{scaling}, {dtype}", "state": "ok", "why": ""}
            found.append(row)
            out = check.work / f"long-{scaling}-{dtype}.onnx"
            arguments = ["--scale", scaling, "--factor", FACTOR, "--original-length", ORIGINAL]
            if scaling == "longrope":
                arguments += ["--short-factor", ",".join(["1"] * 8),
                              "--long-factor", ",".join(str(1 + pair / 2) for pair in range(8))]
            source = bundle / f"models/mini/{dtype}/rope/model.onnx"
            code, _, errors = check.call("rewrite", source, *arguments, "-o", out)
            if code:
                row |= {"state": "failed", "why": (errors or [""])[-1]}
                continue
            try:
                got = tables(out, provider)
            except Exception as error:  # ONNX Runtime's errors share no class
                row |= {"state": "failed", "why": " ".join(str(error).split())[:300]}
                continue
            row["error"], other = distance(got, scaling, 16), distance(got, scaling, 16, FACTOR - 1)
            row["formula"] = row["error"] / BOUND
            if row["error"] > BOUND:
                row |= {"state": "failed", "why": f"{row['error']:.2g} from the formula, over {BOUND:.2g}"}
            elif scaling != "longrope" and other <= BOUND:
                row |= {"state": "failed", "why": "another factor is not told from this one"}
            if provider == "cuda":
                on_processor = tables(out, "cpu")
                row["processor"] = max(float(numpy.abs(got[k] - on_processor[k]).max()) for k in got)
    return found
