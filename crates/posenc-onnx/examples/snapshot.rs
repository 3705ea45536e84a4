//! A snapshot test, as a project with models of its own would write it: it fails when an exporter
//! starts to write another encoding.
//!
//! `cargo test --example snapshot`

use std::error::Error;
use std::path::Path;

use posenc_onnx::Model;

/// The encodings of a model, one line each.
pub fn encodings(path: &Path) -> Result<String, Box<dyn Error>> {
    let report = Model::open(path)?.inspect();
    let line = |e: &posenc_onnx::report::Encoding| {
        let params = serde_json::to_string(&e.params).unwrap_or_default();
        format!("{} in {} sites: {params}", e.kind, e.sites)
    };
    let lines: Vec<String> = report.encodings.iter().map(line).collect();
    Ok(lines.join("\n"))
}

#[allow(dead_code, clippy::print_stdout)] // a program may print
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the model to read")?;
    println!("{}", encodings(Path::new(&path))?);
    Ok(())
}

#[test]
fn the_exporter_still_writes_alibi() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/mini/alibi/model.onnx");
    insta::assert_snapshot!(encodings(&path).unwrap(), @r#"alibi in 2 sites: {"heads":3,"slopes":[0.0625,0.00390625,0.25],"symmetric":null}"#);
}
