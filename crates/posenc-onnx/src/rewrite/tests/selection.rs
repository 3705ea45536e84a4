//! Layers, stacks and inputs that a request names and the model lacks.

use posenc_ir::DType;

use crate::graph::sketch::{HIDDEN, Sketch};
use crate::prove::testing::fixture;
use crate::request::{InputRole, LawName, Layers, Request};
use crate::rewrite::{plan, rewrite};
use posenc_encodings::kind::{Kind, Stack};
use posenc_encodings::param::{Given, Value};

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

#[test]
fn an_encoding_of_all_layers_is_not_replaced_in_some() {
    for kind in [Kind::Rope, Kind::None, Kind::Alibi] {
        let of = |name: &str, layers: &[usize]| {
            let mut model = fixture(name);
            let request = Request {
                to: Some(kind),
                layers: Some(Layers::of(layers.iter().copied())),
                ..Request::default()
            };
            let done = crate::rewrite::rewrite(&mut model, &request);
            done.map(drop).map_err(|why| why.to_string())
        };
        let why = of("mini/learned", &[0]).unwrap_err();
        let want = "the learned encoding applies to all layers; `layers` cannot be used";
        assert_eq!(why, want, "{kind}");
        assert_eq!(of("mini/learned", &[0, 1]), Ok(()), "{kind}");
    }
}

#[test]
fn what_cannot_be_inserted_is_refused_with_what_helps() {
    let of = |kind: Kind, change: &dyn Fn(&mut Request)| {
        said("mini/none", false, |r| {
            r.to = Some(kind);
            change(r);
        })
    };
    let length = |n: usize| move |r: &mut Request| r.parameters.max_length = Some(n);
    for kind in [Kind::Learned, Kind::Sinusoidal] {
        let why = of(kind, &length(8)).unwrap_err();
        assert!(why.ends_with("give at least 15"), "{why}");
        assert_eq!(of(kind, &length(15)), Ok(()));
    }
    let base = |theta: f64| move |r: &mut Request| r.parameters.theta = Some(theta);
    for theta in [0.5, 1.0] {
        let why = of(Kind::Sinusoidal, &base(theta)).unwrap_err();
        assert!(why.contains("where it is above 1"), "{why}");
    }
    assert_eq!(of(Kind::Sinusoidal, &base(1.01)), Ok(()));
    let buckets = |n: usize, far: usize| {
        move |r: &mut Request| {
            let counts = [("num-buckets", n), ("max-distance", far)];
            let counts = counts.map(|(name, count)| (name, Value::Count(count)));
            r.parameters.family = Given::from_iter(counts);
        }
    };
    let why = of(Kind::T5Bias, &buckets(1, 128)).unwrap_err();
    let least: usize = if why.contains("at least 4 are needed") {
        4
    } else {
        2
    };
    assert!(why.contains("`num-buckets` is 1, and at least"), "{why}");
    assert_eq!(of(Kind::T5Bias, &buckets(least, 128)), Ok(()));
    let why = of(Kind::T5Bias, &buckets(32, 4)).unwrap_err();
    let exact = 32 / least;
    assert!(
        why.contains(&format!("above {exact} is needed, or fewer")),
        "{why}"
    );
    assert_eq!(of(Kind::T5Bias, &buckets(32, exact + 1)), Ok(()));
    assert_eq!(of(Kind::T5Bias, &buckets(least, 4)), Ok(()));
}

#[test]
fn a_role_that_leaves_no_attention_is_named() {
    let why = said("mini/rope", false, |r| {
        r.input_roles
            .insert("input_ids".to_owned(), InputRole::Position);
    });
    assert!(why.unwrap_err().contains("`input-role`"));
}

#[test]
fn a_role_other_than_its_own_is_named_where_something_is_not_read() {
    let of = |name: &str, role| {
        said("llama/optimum", true, |r| {
            r.input_roles.insert(name.to_owned(), role);
        })
    };
    let why = of("position_ids", InputRole::Padding).unwrap_err();
    let want = "`input-role` makes position_ids a padding mask, which without it is position ids";
    assert!(why.contains(want), "{why}");
    // Controls: what it is anyway, and no role.
    assert_eq!(of("position_ids", InputRole::Position), Ok(()));
    let why = said("mini/none", true, |_| {}).unwrap_err();
    assert!(!why.contains("`input-role`"), "{why}");
}

#[test]
fn a_width_alone_is_refused_with_what_takes_it() {
    let of = |name: &str, to| {
        said(name, false, |r| {
            r.to = to;
            r.parameters.rotary_dim = Some(8);
        })
    };
    let why = of("mini/rope", None).unwrap_err();
    assert!(why.contains("give `to` rope to rotate that many"), "{why}");
    assert_eq!(of("mini/rope", Some(Kind::Rope)), Ok(()));
    let why = of("mini/learned", None).unwrap_err();
    assert!(!why.contains("`to` rope"), "{why}");
}

#[test]
fn the_encodings_of_a_stack_without_self_attention_are_not_kept_in_silence() {
    let removed = |attends_to_itself: bool, layers: Option<&str>| {
        let mut s = Sketch::default();
        let memory = s.input("memory", DType::F32, &["batch", "source", "24"]);
        let x = s.embedded();
        let (table, at) = (s.weights(&[32, HIDDEN]), s.range());
        let rows = s.gather(&table, &at, 0);
        let mut x = s.op("Add", &[&x, &rows]);
        if attends_to_itself {
            x = s.attends(&x, &x);
        }
        let y = s.attends(&x, &memory);
        let mut model = s.model(18, &[&y]);
        let mut request = Request {
            to: Some(Kind::None),
            layers: layers.map(|layers| layers.parse().unwrap()),
            ..Request::default()
        };
        let first = rewrite(&mut model.clone(), &request).map(|_| ());
        request.allowances.allow_unread = true;
        rewrite(&mut model, &request).unwrap();
        first.map_err(|why| why.to_string())
    };
    for layers in [None, Some("0")] {
        let why = removed(false, layers).unwrap_err();
        assert!(why.contains("keys may come from a cache"), "{why}");
    }
    assert_eq!(removed(true, None), Ok(()), "control");
}
