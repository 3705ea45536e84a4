//! The `posenc.request` metadata entry: what was asked of a rewrite, so that it can be done again
//! for a comparison.

use posenc_encodings::inferred::Inferred;
use posenc_ir::Model;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::request::Request;

const KEY: &str = "posenc.request";

/// Entries of a config that are longer, as lists of labels, are not recorded.
const LARGE: usize = 8192;

/// What was asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    tool: String,
    /// The request, without the learned values of a file.
    pub(crate) request: Request,
    /// Whether learned values came from a file.
    #[serde(default)]
    pub(crate) has_tensors: bool,
    /// The length that the model was trained for by an earlier request, where this one names none.
    #[serde(default)]
    original_length: Option<usize>,
}

impl Asked {
    /// The length that the model was trained for, by the last request that names it.
    pub(crate) fn original_length(&self) -> Option<usize> {
        let own = self.request.parameters.original_length;
        own.or(self.original_length)
    }

    /// Whether this version of the tool wrote the record.
    pub(crate) fn is_of_this_version(&self) -> bool {
        self.tool == tool()
    }
}

fn tool() -> &'static str {
    concat!("posenc-onnx ", env!("CARGO_PKG_VERSION"))
}

/// Records a request; nothing where it is not JSON. Of the config next to a model, it names the length
/// that was `inferred` from it, and of earlier requests the length that this one does not name.
pub(crate) fn write(model: &mut Model, request: &Request, inferred: &[Inferred]) {
    let mut request = request.clone();
    let read = request.model_config.take();
    // It changes nothing in the model.
    request.allowances.write_config = false;
    let length = inferred.iter().find(|i| i.name == "original-length");
    let length = length.filter(|_| read.is_some() && request.hf_config.is_none());
    let length = length.and_then(|i| usize::try_from(i.value.as_u64()?).ok());
    let given = request.parameters.original_length;
    request.parameters.original_length = given.or(length);
    let text = |request: &Request| serde_json::to_value(request).ok();
    let (Some(mut asked), Some(usual)) = (text(&request), text(&Request::default())) else {
        return;
    };
    prune(&mut asked, &usual);
    if let Some(Value::Object(entries)) = asked.get_mut("hf_config") {
        entries.retain(|_, entry| entry.to_string().len() <= LARGE);
    }
    let mut entry = json!({"tool": tool(), "request": asked});
    if request.params.is_some() {
        entry["has_tensors"] = json!(true);
    }
    let earlier = self::read(model).and_then(Result::ok);
    let earlier = earlier.and_then(|earlier| earlier.original_length());
    let earlier = earlier.filter(|_| request.parameters.original_length.is_none());
    if let Some(length) = earlier {
        entry["original_length"] = json!(length);
    }
    model.set_metadata(KEY, entry.to_string());
}

/// Removes what is as usual.
fn prune(value: &mut Value, usual: &Value) {
    let (Value::Object(entries), Value::Object(usual)) = (value, usual) else {
        return;
    };
    entries.retain(|key, entry| usual.get(key) != Some(entry));
    for (key, entry) in entries {
        if let Some(usual) = usual.get(key) {
            prune(entry, usual);
        }
    }
}

/// What was asked of the rewrite that made a model; `None` where it is not recorded.
///
/// # Errors
/// In words, where the record cannot be read.
pub(crate) fn read(model: &Model) -> Option<Result<Asked, String>> {
    let entry = model.metadata(KEY)?;
    Some(serde_json::from_str(entry).map_err(|e| e.to_string()))
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Kind;

    use super::*;
    use crate::request::Config;

    #[test]
    fn a_request_is_recorded_without_what_is_usual_and_read_back() {
        let text = "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                    test (float[batch] x) => (float[batch] y) {\n    y = Identity(x)\n}\n";
        let mut model = Model::parse(text).unwrap();
        assert!(read(&model).is_none());
        let mut request = Request {
            to: Some(Kind::Alibi),
            ..Request::default()
        };
        request.parameters.max_length = Some(64);
        write(&mut model, &request, &[]);
        let want = format!(
            r#"{{"tool":"{}","request":{{"to":"alibi","parameters":{{"max_length":64}}}}}}"#,
            tool()
        );
        assert_eq!(model.metadata(KEY), Some(&*want));
        assert_eq!(read(&model).unwrap().unwrap().request, request);
        let labels = "x".repeat(2 * LARGE);
        let config = json!({"rope_theta": 5e5, "id2label": {"0": labels}}).to_string();
        let config = Config::from_text("config.json", config);
        request.model_config = Some(config.clone());
        write(
            &mut model,
            &request,
            &[Inferred::new("original-length", 32, "config.json")],
        );
        let again = read(&model).unwrap().unwrap().request;
        assert_eq!(again.model_config, None);
        assert_eq!(again.parameters.original_length, Some(32));
        request.hf_config = Some(config);
        for _ in 0..2 {
            write(&mut model, &request, &[]);
            let again = read(&model).unwrap().unwrap();
            assert_eq!(again.original_length(), Some(32), "of the first request");
            let again = again.request;
            assert_eq!(again.parameters.original_length, None);
            assert_eq!(json!(again.hf_config.unwrap()), json!({"rope_theta": 5e5}));
        }
        for bad in ["", "[]", r#"{"tool": "t", "request": {"to": "what"}}"#] {
            model.set_metadata(KEY, bad.to_owned());
            assert!(read(&model).unwrap().is_err(), "{bad}");
        }
    }
}
