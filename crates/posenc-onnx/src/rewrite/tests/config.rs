//! The config next to a model, from which the original length is inferred.

use crate::prove::testing::fixture;
use crate::request::{Config, LawName, Request, ScaleType};
use crate::rewrite::plan;

/// What planning a rescale with this config says, with a change.
fn said(scale: ScaleType, config: &str, length: Option<usize>) -> Result<String, String> {
    let mut request = Request {
        scale: Some(scale),
        model_config: Some(Config::from_text("config.json", config)),
        ..Request::default()
    };
    request.parameters.original_length = length;
    let model = fixture("mini/rope");
    let planned = plan(&model, request, &[]).map_err(|why| why.to_string())?;
    Ok(format!("{:?}", planned.change))
}

#[test]
fn a_config_that_cannot_be_followed_is_not_passed_over() {
    let yarn = LawName::Yarn.into();
    for wrong in [
        r#"{"max_position_embeddings": 64, "rope_scaling": {"rope_type": "yran", "factor": 2}}"#,
        r#"{"max_position_embeddings": 64, "rope_scaling": {"rope_type": "linear"}}"#,
        r#"{"max_position_embeddings": "64"}"#,
    ] {
        let why = said(yarn, wrong, None).unwrap_err();
        assert!(why.starts_with("config.json: "), "{why}");
        assert!(why.ends_with("; give `original-length` instead"), "{why}");
        // Nothing of it is needed.
        assert!(said(yarn, wrong, Some(64)).is_ok());
        assert!(said(ScaleType::None, wrong, None).is_ok());
    }
    let plan = said(yarn, r#"{"max_position_embeddings": 64}"#, None).unwrap();
    assert!(plan.contains("config.json"), "{plan}");
}
