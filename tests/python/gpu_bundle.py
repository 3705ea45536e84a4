"""Puts together what `gpu.py` needs, to be carried to a machine with a GPU.

    gpu_bundle.py ROOT BINARY MODELS PACKAGES BUNDLE [MIB]

BUNDLE gets the tool, the scripts, fixtures, MODELS (by `gpu_models.py`), PACKAGES (ONNX Runtime's for CUDA)
and, where ROOT/../shared has them, models in fused and quantized forms. With MIB, BUNDLE.tar.xz.00 and so on
hold all of it in parts of so many MiB: `cat BUNDLE.tar.xz.* | tar xJ` unpacks them.
"""

import pathlib
import shutil
import subprocess
import sys

FIXTURES = ("bert", "bloom", "gpt2", "llama", "vit")
FORMS = ("dtypes/llama", "genai", "opset23", "ort-fusions", "ort-optimized")
# What no session loads: PyTorch's outputs of forms, and tools of ONNX Runtime.
UNUSED = shutil.ignore_patterns("__pycache__", "*.npz", "transformers", "quantization", "tools")


def copy(source, target):
    shutil.copytree(source, target, ignore=UNUSED, dirs_exist_ok=True)


def main():
    root, binary, models, packages, bundle = map(pathlib.Path, sys.argv[1:6])
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.mkdir(parents=True)
    shutil.copy2(binary, bundle / "posenc-onnx")
    for script in sorted((root / "tests/python").glob("gpu*.py")):
        shutil.copy2(script, bundle)
    for name in FIXTURES:
        copy(root / "fixtures" / name, bundle / "fixtures" / name)
    shutil.copytree(models, bundle / "models")
    for name in FORMS:
        if (root / "../shared/forms" / name).is_dir():
            copy(root / "../shared/forms" / name, bundle / "forms" / name)
    copy(packages / "onnxruntime", bundle / "packages/onnxruntime")
    if len(sys.argv) > 6:
        packed = f"{bundle}.tar.xz."
        for old in bundle.parent.glob(f"{bundle.name}.tar.xz.*"):
            old.unlink()
        tar = ["tar", "-C", str(bundle.parent), "-c", "--sort=name", bundle.name]
        # The dictionary holds a whole model, so that weights that models share are stored once.
        command = f'{" ".join(tar)} | xz -6 -T0 --lzma2=preset=6,dict=64MiB | split -d -b {sys.argv[6]}M - {packed}'
        subprocess.run(command, shell=True, check=True)


if __name__ == "__main__":
    main()
