//! Rewrites of what was rewritten before, with the config that was written then.

use posenc_encodings::laws::LawName;
use posenc_encodings::param::{Given, Value as Param};
use serde_json::{Value, json};

use super::{change_of, fixture, fourfold, scale, with};
use crate::config::ConfigChange;
use crate::config::reach::{Reach, Said};
use crate::facade::Model;
use crate::plan::rescale::Plan;
use crate::report::Limits;
use crate::request::hf_config::HfConfig;
use crate::request::{Config, Parameters, Request, ScaleType};

const LLAMA: &str = "llama/torchscript";

/// A law without an original length of its own, and nothing that says one.
fn unstated(law: LawName) -> Request {
    let mut parameters = Parameters {
        factor: Some(4.0),
        ..Parameters::default()
    };
    if law == LawName::Alpha {
        parameters.factor = None;
        parameters.law = Given::from_iter([("alpha", Param::Number(8.0))]);
    }
    let mut request = scale(law, parameters);
    request.allowances.allow_rescale = true;
    request
}

/// Rewrites a model that has this config next to it; both afterwards.
fn again(model: &Model, config: &Value, mut request: Request) -> (Model, ConfigChange) {
    request.model_config = Some(Config::from_text("config.json", config.to_string()));
    let done = model.plan(request).unwrap().apply().unwrap();
    let change = done.config(config).unwrap();
    (Model::checked(done.into_ir()).unwrap(), change)
}

#[test]
fn a_repeated_rewrite_finds_the_length_that_it_wrote() {
    for law in [
        LawName::Linear,
        LawName::Ntk,
        LawName::Alpha,
        LawName::Proportional,
    ] {
        let (model, config) = fixture(LLAMA);
        let want = if law == LawName::Alpha { 64 } else { 256 };
        // From the original model.
        let first = change_of(LLAMA, unstated(law), &config).unwrap();
        assert_eq!(first.value()["max_position_embeddings"], want, "{law:?}");
        let second = change_of(LLAMA, unstated(law), first.value()).unwrap();
        assert_eq!(json!(second.changes()), json!({}), "{law:?}");
        assert_eq!(second.warnings(), [""; 0], "{law:?}");
        // In place.
        let (scaled, first) = again(&model, &config, unstated(law));
        assert_eq!(first.value()["max_position_embeddings"], want, "{law:?}");
        if law != LawName::Ntk && law != LawName::Alpha {
            let (_, second) = again(&scaled, first.value(), unstated(law));
            assert_eq!(json!(second.changes()), json!({}), "{law:?}");
        }
    }
}

#[test]
fn the_record_of_a_model_comes_before_the_config_that_was_written() {
    let (model, config) = fixture(LLAMA);
    for law in [LawName::Linear, LawName::Ntk, LawName::Yarn] {
        let (scaled, written) = again(&model, &config, unstated(law));
        assert_eq!(written.value()["max_position_embeddings"], 256);
        let mut longer = Request::default();
        longer.parameters.max_length = Some(512);
        let (longer, written_later) = again(&scaled, written.value(), longer);
        for (model, written, reach) in [(&scaled, &written, 256), (&longer, &written_later, 256)] {
            let (_, yarn) = again(model, written.value(), unstated(LawName::Yarn));
            let original = &yarn.value()["rope_scaling"]["original_max_position_embeddings"];
            assert_eq!(original, 64, "{law:?}");
            assert_eq!(yarn.value()["max_position_embeddings"], reach, "{law:?}");
        }
    }
}

#[test]
fn plain_rope_gets_the_original_length_back_where_it_is_known() {
    let none = || {
        let mut request = scale(ScaleType::None, Parameters::default());
        request.parameters.theta = Some(1e4);
        request.allowances.allow_rescale = true;
        request
    };
    let (model, config) = fixture(LLAMA);
    for law in [LawName::Linear, LawName::Ntk] {
        let (scaled, written) = again(&model, &config, unstated(law));
        let (_, back) = again(&scaled, written.value(), none());
        assert_eq!(back.value(), &config, "{law:?}");
        assert_eq!(back.warnings(), [""; 0]);
    }
    let linear = json!({"rope_type": "linear", "factor": 4.0});
    let changes = json!({"max_position_embeddings": 256, "rope_scaling": linear});
    let config = with(LLAMA, changes);
    let back = change_of(LLAMA, none(), &config).unwrap();
    assert_eq!(back.value()["max_position_embeddings"], 256);
    let want = "the config says a scaling, and nothing says which length the model was trained for, so \
                that its lengths stay as they are (256)";
    assert_eq!(back.warnings(), [want]);
}

/// The config next to the output may be that of an earlier rewrite of the same model.
#[test]
fn another_law_replaces_that_of_the_config() {
    let linear = json!({"rope_type": "linear", "factor": 2.0});
    let changes = json!({"max_position_embeddings": 128, "rope_scaling": linear});
    let done = change_of(
        LLAMA,
        scale(LawName::Linear, fourfold()),
        &with(LLAMA, changes),
    );
    let want = json!({"max_position_embeddings": [128, 256], "rope_scaling.factor": [2.0, 4.0]});
    assert_eq!(json!(done.unwrap().changes()), want);
}

#[test]
fn the_longest_of_all_branches_counts() {
    let plan = |length| {
        Some(Plan {
            targets: vec![],
            max_length: Some(length),
            inferred: vec![],
        })
    };
    let request = Request {
        hf_config: Some(Config::from_text("new.json", "{}")),
        ..Request::default()
    };
    let now = HfConfig::parse("{}").unwrap().rope_for(0).unwrap().unwrap();
    let said = Said {
        now: &now,
        max: Some(64),
        is_done: false,
    };
    for lengths in [[128, 256], [256, 128]] {
        let reach = Reach::of(&lengths.map(plan), &request, None, false);
        let (lengths, _) = reach.lengths(&now.scaling, &said, &Limits::default());
        assert_eq!(lengths.spans[0].new, 256);
    }
}
