use posenc_runtime::{ModelSource, Options as RunOptions, RuntimeError, Session};

use super::*;
use crate::detect::Options;
use crate::detect::branches::branches;
use crate::prove::found;
use crate::prove::testing::{Evaluator, fixture};
use crate::record::swap::read;
use crate::request::Request;
use crate::rewrite::rewrite;

/// A model without encodings that got this one.
fn swapped(to: Kind) -> (Model, SwapRecord) {
    let from = if to == Kind::None { "rope" } else { "none" };
    let mut model = fixture(&format!("mini/{from}"));
    let mut request = Request {
        to: Some(to),
        ..Request::default()
    };
    request.parameters.max_length = (to == Kind::Learned).then_some(64);
    rewrite(&mut model, &request).unwrap();
    let record = read(&model).unwrap().unwrap();
    (model, record)
}

fn held(model: &Model, record: &SwapRecord, backend: impl Backend + 'static) -> Inserted {
    let branches = branches(model, &Options::default());
    hold(model, record, &branches, &[&backend])
}

/// The quantities that fail.
fn failing(all: &Inserted) -> Vec<&str> {
    let failed = all.held.checks.iter().filter(|c| !c.ok);
    let mut failed: Vec<&str> = failed.map(|c| &*c.quantity).collect();
    failed.dedup();
    failed
}

#[test]
fn a_record_that_leaves_something_out_fails() {
    type Change = fn(&mut SwapRecord);
    let changes: [(&str, Change, &[&str]); 8] = [
        ("nothing", |_| {}, &[]),
        ("branches", |r| r.branches.clear(), &["record"]),
        ("groups", |r| r.branches[0].groups.clear(), &["record"]),
        (
            "sites of a group",
            |r| r.branches[0].groups[0].sites.clear(),
            &["record"],
        ),
        (
            "a site of a group",
            |r| r.branches[0].groups[0].sites.truncate(1),
            &["record"],
        ),
        ("sites", |r| r.branches[0].sites.clear(), &["record"]),
        (
            "all sites",
            |r| {
                r.branches[0].sites.clear();
                r.branches[0].groups[0].sites.clear();
            },
            &["record"],
        ),
        (
            "sites that do not exist",
            |r| r.branches[0].groups[0].sites[0] = 99,
            &["record", "attention"],
        ),
    ];
    for to in [Kind::Alibi, Kind::Rope] {
        let (model, honest) = swapped(to);
        for (what, change, want) in changes {
            // Rotations are run elsewhere.
            if to == Kind::Rope && want.contains(&"attention") {
                continue;
            }
            let mut record = honest.clone();
            change(&mut record);
            let all = held(&model, &record, Evaluator::default());
            assert_eq!(failing(&all), want, "{to}: {what}: {all:?}");
            assert!(all.unchecked.is_empty(), "{to}: {what}: {all:?}");
        }
    }
}

#[test]
fn honest_records_pass_and_leave_nothing_out() {
    for to in [Kind::RelativeBias, Kind::Learned, Kind::Conv] {
        let (model, record) = swapped(to);
        let all = held(&model, &record, Evaluator::default());
        assert_eq!(failing(&all), [""; 0], "{to}: {all:?}");
        assert!(all.unchecked.is_empty(), "{to}: {all:?}");
        assert!(!all.held.checks.is_empty(), "{to}");
    }
}

#[test]
fn a_record_of_none_has_no_parameters() {
    let (model, mut record) = swapped(Kind::None);
    let all = held(&model, &record, Evaluator::default());
    assert!(all.held.checks.iter().all(|c| c.ok), "{all:?}");
    assert!(all.unchecked.is_empty(), "{all:?}");
    record.branches.clear();
    let all = held(&model, &record, Evaluator::default());
    let why = "none against its formula, because the record of the swap names no sites";
    assert_eq!(all.unchecked, [why]);
}

/// Takes no model.
#[derive(Clone, Debug)]
struct Refusing;

impl Backend for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }

    fn version(&self) -> String {
        "0".to_owned()
    }

    fn load(&self, _: ModelSource<'_>, _: &RunOptions) -> Result<Box<dyn Session>, RuntimeError> {
        Err(RuntimeError::unsupported("refusing", "it never does"))
    }
}

#[test]
fn it_is_said_where_no_runtime_compares_anything() {
    let (model, record) = swapped(Kind::Alibi);
    let all = held(&model, &record, Evaluator::default());
    assert!(!all.held.checks.is_empty());
    assert!(all.unchecked.is_empty(), "{all:?}");
    let why = "alibi against its formula, because no runtime compared anything";
    let all = held(&model, &record, Refusing);
    assert_eq!(all.refused.len(), 1);
    assert_eq!(all.unchecked, [why]);
    let branches = branches(&model, &Options::default());
    let all = found::hold(&model, None, &branches, &[&Refusing]);
    assert_eq!(all.unchecked, [why]);
}

#[test]
fn of_two_runtimes_the_worse_one_is_reported() {
    let check = |quantity: &str, max_error: Option<f64>| SiteCheck {
        site: "a".into(),
        quantity: quantity.into(),
        max_error,
        bound: 1.0,
        ok: max_error.is_some_and(|e| e <= 1.0),
    };
    for (first, second, worse) in [
        (Some(0.5), Some(0.25), Some(0.5)),
        (Some(0.25), Some(0.5), Some(0.5)),
        (Some(0.25), Some(2.0), Some(2.0)),
        (None, Some(0.5), None),
        (Some(0.5), None, None),
    ] {
        let mut all = vec![check("scores", first)];
        merge(
            &mut all,
            vec![check("scores", second), check("mask", Some(0.0))],
        );
        let got: Vec<Option<f64>> = all.iter().map(|c| c.max_error).collect();
        assert_eq!(got, [worse, Some(0.0)], "{first:?} {second:?}");
    }
}

#[test]
fn a_position_in_a_model_that_was_to_have_none_is_seen_by_a_run() {
    let (model, record) = swapped(Kind::None);
    assert_eq!(
        failing(&held(&model, &record, Evaluator::default())),
        [""; 0]
    );
    let all = held(&model, &record, wrong());
    assert!(
        failing(&all).contains(&"queries of equal tokens"),
        "{all:?}"
    );
    // What was not read is said in its place.
    let mut model = model;
    crate::record::write_unread(&mut model, &["a position is left".to_owned()]);
    let all = held(&model, &record, wrong());
    assert_eq!(failing(&all), [""; 0]);
    assert!(
        all.unchecked
            .iter()
            .any(|why| why.contains("something was not read"))
    );
}

/// A runtime that returns another number for the last token.
fn wrong() -> Evaluator {
    Evaluator {
        fault: Some(|data, _| *data.last_mut().unwrap() += 1.0),
        ..Evaluator::default()
    }
}
