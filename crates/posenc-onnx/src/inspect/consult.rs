//! What a config determines and a graph does not.

use serde_json::{Value, json};

use crate::report::{Encoding, Inspect};
use crate::request::hf_config::{HfConfig, HfConfigError, RopeRequest};
use posenc_encodings::kind::Kind;

/// How far two parameters may differ and count as the same.
const CLOSE: f64 = 1e-2;

impl Inspect {
    /// Fills in the lengths that the graph determines only as a range, and warns where the config
    /// says another thing than the graph computes.
    ///
    /// # Errors
    /// A config that [`HfConfig::rope_for`] refuses.
    pub fn consult(&mut self, config: &HfConfig) -> Result<(), HfConfigError> {
        let ropes = self.encodings.iter_mut().filter(|e| e.kind == Kind::Rope);
        for encoding in ropes {
            let Some(&layer) = encoding.layers.first() else {
                continue;
            };
            let warning = match config.rope_for(layer)? {
                None => Some(format!(
                    "the config has no rotary embedding in layer {layer}"
                )),
                Some(request) => consult(encoding, &request),
            };
            self.warnings.extend(warning);
        }
        Ok(())
    }
}

/// The first thing in which the config and the graph disagree.
fn consult(encoding: &mut Encoding, request: &RopeRequest) -> Option<String> {
    let said = |name: &str, config: &dyn std::fmt::Display, graph: &dyn std::fmt::Display| {
        Some(format!(
            "the config says {name} {config}, the graph computes {graph}"
        ))
    };
    let params = &mut encoding.params;
    let law = params.get("scaling").and_then(|s| s.get("type"));
    let law = law.and_then(Value::as_str).unwrap_or("none").to_owned();
    let name = request.scaling.name();
    if law != name {
        // At one length these read as plain frequencies of another theta.
        return if law == "none" && request.scaling.reads_as_plain() {
            None
        } else {
            said("scaling", &name, &law)
        };
    }
    let theta = params.get("theta").and_then(Value::as_f64);
    if let Some(theta) = theta.filter(|t| !is_close(*t, request.theta)) {
        return said("theta", &request.theta, &theta);
    }
    let (Some(Value::Object(law)), Some(length)) =
        (params.get_mut("scaling"), request.scaling.original_length())
    else {
        return None;
    };
    let range: Option<Vec<u64>> = law
        .get("original_length_range")
        .and_then(Value::as_array)
        .map(|range| range.iter().filter_map(Value::as_u64).collect());
    let found = law.get("original_length").and_then(Value::as_u64);
    let fits = match (range.as_deref(), found) {
        (Some(&[low, high]), _) => (low..=high).contains(&(length as u64)),
        (_, Some(found)) => found == length as u64,
        (_, None) => true,
    };
    if !fits {
        let graph = Value::from(law.clone());
        return said("original length", &length, &graph);
    }
    law.insert("original_length".to_owned(), json!(length));
    law.shift_remove("original_length_range");
    if law.contains_key("exact") {
        law.insert("exact".to_owned(), json!(true));
    }
    None
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= CLOSE * a.abs().max(b.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ModelSummary;
    use posenc_encodings::kind::Form;

    fn report(params: Value) -> Inspect {
        let mut report = Inspect::new(ModelSummary {
            path: String::new(),
            fingerprint: String::new(),
            sha256: None,
            ir_version: 8,
            opsets: Default::default(),
            producer: String::new(),
            nodes: 0,
            parameters: 0,
            external_data: false,
        });
        let Value::Object(params) = params else {
            panic!("parameters are an object");
        };
        let mut rope = Encoding::new(Kind::Rope, None, Form::Ops, params);
        rope.layers = vec![0];
        report.encodings.push(rope);
        report
    }

    fn yarn() -> Value {
        json!({"theta": 1e4, "rotary_dim": 16, "head_dim": 16,
               "scaling": {"type": "yarn", "factor": 4.0, "original_length": null,
                           "original_length_range": [63, 198], "exact": false}})
    }

    fn config(theta: f64, law: Value) -> HfConfig {
        HfConfig::from_value(json!({"rope_theta": theta, "head_dim": 16, "rope_scaling": law}))
            .unwrap()
    }

    fn yarn_of(length: usize) -> Value {
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": length})
    }

    #[test]
    fn a_length_within_the_range_becomes_exact() {
        let mut report = report(yarn());
        report.consult(&config(1e4, yarn_of(64))).unwrap();
        assert_eq!(report.warnings, [""; 0]);
        let want = json!({"type": "yarn", "factor": 4.0, "original_length": 64, "exact": true});
        assert_eq!(report.encodings[0].params["scaling"], want);
    }

    #[test]
    fn what_the_graph_computes_otherwise_is_a_warning_and_stays() {
        let plain = json!({"theta": 1e4, "scaling": null});
        let linear = json!({"rope_type": "linear", "factor": 2.0});
        let cases = [
            (
                "length",
                yarn(),
                config(1e4, yarn_of(4096)),
                "original length 4096",
            ),
            ("theta", yarn(), config(5e5, yarn_of(64)), "theta 500000"),
            (
                "no scaling",
                yarn(),
                config(1e4, Value::Null),
                "scaling none",
            ),
            ("a scaling", plain, config(1e4, linear), "scaling linear"),
        ];
        for (name, params, config, want) in cases {
            let mut report = report(params.clone());
            report.consult(&config).unwrap();
            assert_eq!(report.warnings.len(), 1, "{name}");
            assert!(
                report.warnings[0].contains(want),
                "{name}: {}",
                report.warnings[0]
            );
            assert_eq!(
                Value::from(report.encodings[0].params.clone()),
                params,
                "{name}"
            );
        }
    }

    #[test]
    fn a_config_that_cannot_be_followed_is_an_error() {
        let wrong = config(1e4, json!({"rope_type": "yran"}));
        let why = report(yarn()).consult(&wrong).unwrap_err().to_string();
        assert!(why.contains("yran"), "{why}");
    }
}
