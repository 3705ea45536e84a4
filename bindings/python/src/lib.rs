//! The extension module `posenc_onnx._native`: the library and the command line for Python.
//!
//! Requests arrive and reports leave as JSON, so that a new parameter or field needs no code here;
//! the package around it makes them keyword arguments and dataclasses.

mod errors;
mod inspect;
mod models;
mod options;
mod rewrite;
mod tensors;
mod verify;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;

use posenc_cli::Search;
use pyo3::prelude::*;

/// Runs the command line and returns its exit code.
///
/// `arguments` are without the name of the program; `onnxruntime` is the folder of that package.
#[pyfunction]
#[pyo3(signature = (arguments, onnxruntime))]
fn run(py: Python<'_>, arguments: Vec<OsString>, onnxruntime: Option<PathBuf>) -> u8 {
    let search = Search::Python(onnxruntime);
    py.allow_threads(|| posenc_cli::run(arguments, &search)) as u8
}

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::run;
    #[pymodule_export]
    use crate::inspect::{inspect, table};
    #[pymodule_export]
    use crate::options::options;
    #[pymodule_export]
    use crate::rewrite::{Plan, Rewritten, plan};
    #[pymodule_export]
    use crate::verify::verify;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("VERSION", env!("CARGO_PKG_VERSION"))
    }
}
