//! Configurations of fixtures after rewrites.

mod contradiction;
mod lengths;
mod models;
mod refused;
mod repeated;
mod rotations;

use serde_json::Value;

use super::ConfigChange;
use crate::facade::Model;
use crate::request::{Parameters, Request, ScaleType};

/// The model of a fixture, and its config.
fn fixture(name: &str) -> (Model, Value) {
    let folder = format!("{}/../../fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let model = Model::open(format!("{folder}/model.onnx")).unwrap();
    let config = std::fs::read_to_string(format!("{folder}/config.json")).unwrap();
    (model, serde_json::from_str(&config).unwrap())
}

/// What becomes of this config where the fixture is rewritten so.
fn change_of(name: &str, request: Request, config: &Value) -> Result<ConfigChange, String> {
    let (model, _) = fixture(name);
    let done = model.plan(request).unwrap().apply().unwrap();
    done.config(config).map_err(|why| why.to_string())
}

/// The same of the fixture's own config.
fn change(name: &str, request: Request) -> Result<ConfigChange, String> {
    let (_, config) = fixture(name);
    change_of(name, request, &config)
}

fn scale(scale: impl Into<ScaleType>, parameters: Parameters) -> Request {
    Request {
        scale: Some(scale.into()),
        parameters,
        ..Request::default()
    }
}

/// Fourfold from 64 positions.
fn fourfold() -> Parameters {
    Parameters {
        factor: Some(4.0),
        original_length: Some(64),
        ..Parameters::default()
    }
}

/// The config of a fixture with these keys instead.
fn with(name: &str, changes: Value) -> Value {
    let (_, mut config) = fixture(name);
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}
