"""Prints the facts that the operator check needs, from the packages onnx and onnxruntime on the path.

Names, versions, counts, attribute names and their types: no documentation.
"""

from itertools import groupby

import onnx
import onnxruntime
from onnx import defs
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

# The domains of ONNX Runtime, and the operators that it adds to ai.onnx under a name of our own.
DOMAINS = ("com.microsoft", "com.microsoft.nchwc")
ADDED = "ai.onnx of ONNX Runtime"
UNBOUNDED = 2**31 - 1

HEAD = """\
# Facts about operators, written by `cargo xtask schema` from onnx {onnx} and
# onnxruntime {runtime}. Not edited by hand.
#
# [domain newest-version]
# Operator
#  since inputs outputs attribute:type …
#
# `2` exactly two, `1-3` one to three, `1+` at least one; `0/2+` at least two, of which none need
# be given. An attribute with `!` is required. A version that changes none of this has no line.
"""


def count(parameters, least, most):
    given = 0
    for parameter in parameters:
        if parameter.option.name != "Single":
            break
        given += 1
    text = str(least)
    if most == UNBOUNDED:
        text += "+"
    elif most != least:
        text += f"-{most}"
    return text if given >= least else f"{given}/{text}"


def attribute(one):
    return f"{one.name}:{one.type.name.lower()}" + "!" * one.required


def line(schema):
    if schema.deprecated:
        return "deprecated"
    names = sorted(schema.attributes)
    words = [
        count(schema.inputs, schema.min_input, schema.max_input),
        count(schema.outputs, schema.min_output, schema.max_output),
    ]
    return " ".join(words + [attribute(schema.attributes[name]) for name in names])


def table(domain, newest, schemas):
    """The operators of one domain."""
    print(f"\n[{domain} {newest}]")
    schemas = sorted(schemas, key=lambda s: (s.name, s.since_version))
    for name, versions in groupby(schemas, key=lambda s: s.name):
        print(name)
        before = None
        for schema in versions:
            facts = line(schema)
            if facts != before:
                print(f" {schema.since_version} {facts}")
            before = facts


def main():
    print(HEAD.format(onnx=onnx.__version__, runtime=onnxruntime.__version__), end="")
    schemas = defs.get_all_schemas_with_history()
    for domain in sorted({s.domain for s in schemas}):
        within = [s for s in schemas if s.domain == domain]
        newest = max(s.since_version for s in within)
        if not domain:
            newest = max(newest, defs.onnx_opset_version())
        table(domain or "ai.onnx", newest, within)
    standard = {s.name for s in schemas if not s.domain}
    own = runtime.get_all_operator_schema()
    for domain in DOMAINS:
        within = [s for s in own if s.domain == domain]
        table(domain, max(s.since_version for s in within), within)
    table(ADDED, 1, [s for s in own if not s.domain and s.name not in standard])


main()
