//! Layers, stacks and inputs that a request names and the model lacks.

use crate::prove::testing::fixture;
use crate::request::{InputRole, LawName, Layers, Request};
use crate::rewrite::plan;
use posenc_encodings::kind::{Kind, Stack};

/// What planning a request says, with a change, that scales rotations or else inserts ALiBi.
fn said(name: &str, scales: bool, change: impl Fn(&mut Request)) -> Result<(), String> {
    let mut request = if scales {
        Request {
            scale: Some(LawName::Linear.into()),
            ..Request::default()
        }
    } else {
        Request {
            to: Some(Kind::Alibi),
            ..Request::default()
        }
    };
    change(&mut request);
    let model = fixture(name);
    plan(&model, request, &[])
        .map(drop)
        .map_err(|why| why.to_string())
}

#[test]
fn layers_and_stacks_that_the_model_lacks_are_refused_whatever_changes() {
    let beyond = "`layers` names layer 99, and the last one is 1";
    let one_stack = "the model has one stack; remove `stack` decoder";
    for scales in [true, false] {
        let layers = |layers: Vec<usize>| {
            said("mini/rope", scales, |r| {
                r.layers = Some(Layers::of(layers.iter().copied()));
            })
        };
        assert_eq!(layers(vec![99]), Err(beyond.to_owned()));
        assert_eq!(layers(vec![0, 99]), Err(beyond.to_owned()));
        assert_eq!(layers(vec![1]), Ok(()));
        let stack = said("mini/rope", scales, |r| r.stack = Some(Stack::Decoder));
        assert_eq!(stack, Err(one_stack.to_owned()));
    }
    let longer = said("mini/rope", true, |r| {
        r.scale = None;
        r.parameters.max_length = Some(256);
        r.layers = Some(Layers::of([99]));
    });
    assert_eq!(longer, Err(beyond.to_owned()));
}

#[test]
fn layers_without_rotations_are_not_rescaled_silently() {
    // Of two layers, the second has no positions.
    let of = |layer| {
        said("smollm3/dynamo", true, |r| {
            r.layers = Some(Layers::of([layer]));
        })
    };
    let why = of(1).unwrap_err();
    assert!(
        why.starts_with("no attention of the named layers is rotary"),
        "{why}"
    );
    assert_eq!(of(0), Ok(()));
}

#[test]
fn a_role_of_no_input_is_refused_whatever_changes() {
    for scales in [true, false] {
        let of = |name: &str| {
            said("mini/rope", scales, |r| {
                r.input_roles.insert(name.to_owned(), InputRole::Content);
            })
        };
        let why = of("absent").unwrap_err();
        assert!(
            why.contains("absent, which is no input of the model"),
            "{why}"
        );
        assert_eq!(of("input_ids"), Ok(()));
    }
}
