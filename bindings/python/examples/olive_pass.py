"""A pass of Olive: `python olive_pass.py model.onnx` runs it alone. Its options are keywords of `posenc_onnx.rewrite`.
Needs olive-ai."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from olive.hardware import DEFAULT_CPU_ACCELERATOR, AcceleratorSpec
from olive.model import ONNXModelHandler
from olive.model.utils import resolve_onnx_path
from olive.passes import Pass
from olive.passes.olive_pass import create_pass_from_dict
from olive.passes.pass_config import PassConfigParam

import posenc_onnx as pe


class PositionalEncoding(Pass):
    """Gives a model another positional encoding, or rescales its own."""

    @classmethod
    def _default_config(cls, accelerator_spec: AcceleratorSpec) -> dict[str, PassConfigParam]:
        about = "Keywords of posenc_onnx.rewrite, as {'scale': 'yarn', 'factor': 4}"
        return {"options": PassConfigParam(type_=dict, required=True, description=about)}

    def _run_for_config(self, model: ONNXModelHandler, config: Any, output_model_path: str) -> ONNXModelHandler:
        path = Path(resolve_onnx_path(output_model_path, Path(model.model_path).name))
        path.parent.mkdir(parents=True, exist_ok=True)
        pe.rewrite(model.model_path, **config.options).save(path)
        return ONNXModelHandler(model_path=path.parent, onnx_file_name=path.name)


def main(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = {"options": {"scale": "yarn", "factor": 4}}
        made = create_pass_from_dict(PositionalEncoding, options, accelerator_spec=DEFAULT_CPU_ACCELERATOR)
        result = made.run(ONNXModelHandler(path), folder)
        scaling = pe.inspect(result.model_path).encodings[0].params["scaling"]
        assert scaling["type"] == "yarn", scaling
        print(f"{Path(result.model_path).name}: {scaling}")
        session = result.prepare_session(execution_providers=["CPUExecutionProvider"])
        print([given.name for given in session.get_inputs()])


if __name__ == "__main__":
    main(sys.argv[1])
