"""Reads the output of `posenc-onnx print` with the official parser.

    print_is_read.py BINARY MODEL …

Each text must have the operators of its model in the same order, including subgraphs and functions,
and its inputs, outputs and initializers. As a control, damaged texts must be refused and a removed
node noticed. Prints the number of models; exits 1 when one was not read correctly.
"""

import subprocess
import sys

import onnx
import onnx.parser


def printed(binary, model, weights):
    run = subprocess.run([binary, "print", model, "--weights", weights], capture_output=True)
    if run.returncode != 0:
        raise ValueError(f"print ended with {run.returncode}: {run.stderr.decode()}")
    return run.stdout.decode()


def in_graph(graph):
    for node in graph.node:
        yield from in_node(node)


def in_node(node):
    domain = "" if node.domain == "ai.onnx" else node.domain
    yield domain, node.op_type, len(node.input), len(node.output)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from in_graph(attribute.g)


def outline(model):
    graph = model.graph
    inputs = [value.name for value in graph.input]
    outputs = [value.name for value in graph.output]
    weights = [(tensor.name, list(tensor.dims), tensor.data_type) for tensor in graph.initializer]
    functions = [(f.domain, f.name, [op for n in f.node for op in in_node(n)]) for f in model.functions]
    return inputs, outputs, weights, list(in_graph(graph)), functions


def check_the_check(text, model):
    """A damaged text is refused, and one without a node is another model."""
    for damaged in (text[:-3], text.replace("=>", "= >", 1), text.replace("(", "((", 1)):
        try:
            onnx.parser.parse_model(damaged)
        except onnx.parser.ParseError:
            continue
        sys.exit("a damaged text was read")
    lines = text.splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if line.startswith("  ") and " = " in line)
    dropped = onnx.parser.parse_model("".join(lines[:last] + lines[last + 1 :]))
    if outline(dropped) == outline(model):
        sys.exit("a dropped node was not noticed")


def main():
    binary, *models = sys.argv[1:]
    wrong = []
    for i, path in enumerate(models):
        model = onnx.load(path, load_external_data=False)
        for weights in ("hash", "full"):
            try:
                text = printed(binary, path, weights)
                read = onnx.parser.parse_model(text)
            except (ValueError, onnx.parser.ParseError) as error:
                wrong.append(f"{path} --weights {weights}: {error}")
                continue
            if outline(read) != outline(model):
                wrong.append(f"{path} --weights {weights}: another model was read")
            if i == 0 and weights == "hash":
                check_the_check(text, model)
    for line in wrong:
        print(line)
    print(f"{len(models)} models printed in 2 ways, {len(wrong)} texts not read")
    sys.exit(1 if wrong or not models else 0)


main()
