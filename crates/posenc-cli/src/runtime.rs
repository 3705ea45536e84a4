//! `runtime`: the runtimes and execution providers that are available.

use clap::ArgAction;
use posenc_runtime::discover::candidates;
use posenc_runtime::{NOT_BUILT, ProviderState, RuntimeInfo, runtimes};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::places::{self, Search};
use crate::terminal::{Palette, Terminal};

/// Show the available runtimes and execution providers, with versions and paths
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write JSON to stdout
    #[arg(long, action = ArgAction::SetTrue)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posenc-onnx runtime
  ORT_DYLIB_PATH=/opt/onnxruntime/lib posenc-onnx runtime

ONNX Runtime is searched for in this order: the path in ORT_DYLIB_PATH; a folder .onnxruntime in
the current folder, its parents, or those of the binary; the active Python environment; the
system's library paths. To install it:
  pip install --target .onnxruntime onnxruntime

`verify --provider` takes these names, a device, and options of ONNX Runtime:
  posenc-onnx verify model.onnx --provider cuda:1,gpu_mem_limit=4294967296
  posenc-onnx verify model.onnx --provider openvino,device_type=GPU
A plugin is named by what ONNX Runtime calls it, and loaded from a file:
  posenc-onnx verify model.onnx --provider NewExecutionProvider,library=libnew_ep.so";

/// Prints what is found.
pub(crate) fn run(args: &Args, search: &Search, terminal: &Terminal) -> anyhow::Result<Exit> {
    let places = places::gather(search);
    let found = runtimes(&places);
    let tried = candidates(&places);
    if args.json {
        let tried: Vec<Value> = tried
            .iter()
            .map(|c| json!(c.path.display().to_string()))
            .collect();
        terminal.print_json(&json(&found, &tried))?;
    } else {
        terminal.print(text(&found, terminal.out))?;
        for candidate in tried {
            terminal.detail(format!("candidate: {}", candidate.path.display()));
        }
    }
    Ok(Exit::Done)
}

fn json(found: &[RuntimeInfo], tried: &[Value]) -> Value {
    let runtime = |info: &RuntimeInfo| {
        let provider = |p: &ProviderState| json!({"name": p.name, "missing": p.missing});
        json!({
            "name": info.name,
            "version": info.version,
            "path": info.path.as_ref().map(|p| p.display().to_string()),
            "missing": info.missing,
            "providers": info.providers.iter().map(provider).collect::<Vec<_>>(),
        })
    };
    json!({
        "schema": posenc_onnx::report::SCHEMA,
        "runtimes": found.iter().map(runtime).collect::<Vec<_>>(),
        "candidates": tried,
    })
}

fn text(found: &[RuntimeInfo], palette: Palette) -> String {
    let mut text = String::new();
    if found.is_empty() {
        text += "this build includes no runtime\n";
    }
    for info in found {
        let version = info.version.as_deref().unwrap_or("not found");
        let place = match (&info.path, &info.missing) {
            (Some(path), _) => path.display().to_string(),
            (None, None) => "built in".to_owned(),
            (None, Some(missing)) => missing.clone(),
        };
        let head = palette.bold(format!("{} {version}", info.name));
        text += &format!("{head}  {}\n", palette.dim(place));
        let (others, own): (Vec<&ProviderState>, Vec<&ProviderState>) =
            (info.providers.iter()).partition(|p| p.missing.as_deref() == Some(NOT_BUILT));
        for provider in own {
            text += &match &provider.missing {
                None => format!("  {}  {}\n", provider.name, palette.good("available")),
                Some(why) => format!("  {}  {}\n", provider.name, palette.dim(why)),
            };
        }
        if !others.is_empty() {
            let names: Vec<&str> = others.iter().map(|p| &*p.name).collect();
            let line = format!("this library was not built with {}", names.join(", "));
            text += &format!("  {}\n", palette.dim(line));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Vec<RuntimeInfo> {
        let provider = |name: &str, missing: Option<&str>| ProviderState {
            name: name.into(),
            missing: missing.map(Into::into),
        };
        let ort = RuntimeInfo {
            name: "onnxruntime",
            version: Some("1.31.0".into()),
            path: Some("/opt/ort/libonnxruntime.so".into()),
            missing: None,
            providers: vec![
                provider("cpu", None),
                provider("cuda", Some("no device was found")),
                provider("coreml", Some(NOT_BUILT)),
                provider("qnn", Some(NOT_BUILT)),
            ],
        };
        let tract = RuntimeInfo {
            name: "tract",
            version: Some("0.23.9".into()),
            path: None,
            missing: None,
            providers: vec![provider("cpu", None)],
        };
        vec![tract, ort]
    }

    #[test]
    fn runtimes_and_providers_are_listed_with_what_is_missing() {
        let want = "\
tract 0.23.9  built in
  cpu  available
onnxruntime 1.31.0  /opt/ort/libonnxruntime.so
  cpu  available
  cuda  no device was found
  this library was not built with coreml, qnn
";
        assert_eq!(text(&found(), Palette::Plain), want);
        let gone = RuntimeInfo {
            name: "onnxruntime",
            version: None,
            path: None,
            missing: Some("no library was found".into()),
            providers: vec![],
        };
        let want = "onnxruntime not found  no library was found\n";
        assert_eq!(text(&[gone], Palette::Plain), want);
        assert_eq!(
            text(&[], Palette::Plain),
            "this build includes no runtime\n"
        );
    }

    #[test]
    fn json_has_every_field() {
        let json = json(&found(), &[]);
        assert_eq!(json["runtimes"][0]["path"], Value::Null);
        assert_eq!(
            json["runtimes"][1]["providers"][1]["missing"],
            "no device was found"
        );
        assert_eq!(json["candidates"], json!([]));
    }
}
