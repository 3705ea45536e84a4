"""Prints the facts that the operator check needs, from the onnx package that is on the path.

Names, versions, counts, attribute names and their types: no documentation.
"""

from itertools import groupby

from onnx import defs

SINGLE = defs.OpSchema.FormalParameterOption.Single
UNBOUNDED = 2**31 - 1

HEAD = """\
# Facts about operators, written by `cargo xtask schema` from onnx {version}. Not edited by hand.
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
        if parameter.option != SINGLE:
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


def main():
    import onnx

    print(HEAD.format(version=onnx.__version__), end="")
    schemas = defs.get_all_schemas_with_history()
    schemas.sort(key=lambda s: (s.domain, s.name, s.since_version))
    for domain, within in groupby(schemas, key=lambda s: s.domain):
        within = list(within)
        newest = max(s.since_version for s in within)
        if not domain:
            newest = max(newest, defs.onnx_opset_version())
        print(f"\n[{domain or 'ai.onnx'} {newest}]")
        for name, versions in groupby(within, key=lambda s: s.name):
            print(name)
            before = None
            for schema in versions:
                facts = line(schema)
                if facts != before:
                    print(f" {schema.since_version} {facts}")
                before = facts


main()
