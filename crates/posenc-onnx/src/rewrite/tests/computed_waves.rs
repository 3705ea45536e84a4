//! Sines and cosines that the graph computes, of divided positions.

use posenc_encodings::kind::Kind;
use posenc_ir::{DType, Model};

use crate::detect::finding::Encoding;
use crate::detect::{Options, detect};
use crate::graph::sketch::{HIDDEN, Sketch};
use crate::request::{LawName, Request};
use crate::rewrite::{Rewritten, rewrite};

/// What is added to tokens, of their places `[sequence, 1]` and of frequencies.
type CodeOf = fn(&mut Sketch, [&str; 2]) -> String;

/// A layer on tokens to which a code is added.
fn with(code: CodeOf) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let at = s.range();
    let at = s.unsqueeze(&at, &[1]);
    let half = HIDDEN / 2;
    let frequencies = (0..half).map(|i| 1e4_f64.powf(-(i as f64) / half as f64));
    let frequencies = s.floats(&[half], frequencies);
    let code = code(&mut s, [&at, &frequencies]);
    let x = s.op("Add", &[&x, &code]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

/// Sines, then cosines, of places of a float type.
fn waves(s: &mut Sketch, at: &str, frequencies: &str) -> String {
    let angles = s.op("Mul", &[at, frequencies]);
    let [sin, cos] = ["Sin", "Cos"].map(|op| s.op(op, &[&angles]));
    s.concat(&[&sin, &cos], 1)
}

fn plain(s: &mut Sketch, [at, frequencies]: [&str; 2]) -> String {
    let at = s.cast(at, DType::F32);
    waves(s, &at, frequencies)
}

fn divided_by(factor: f64) -> Request {
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(factor);
    request
}

fn done(model: &Model, request: &Request) -> Result<(Model, Rewritten), String> {
    let mut model = model.clone();
    let done = rewrite(&mut model, request).map_err(|why| why.to_string())?;
    Ok((model, done))
}

/// What is added to the first tokens, `[token, feature]`.
fn added(model: &Model) -> Vec<f64> {
    let found = detect(model, &Options::default());
    let at = found.findings[0].entries[0];
    let value = model.graph().node(at.node).input(at.slot()).unwrap();
    let numbers = found.trace.get(value).to_f64().unwrap();
    numbers.iter().copied().take(8 * HIDDEN).collect()
}

#[test]
fn positions_are_divided_behind_what_is_added_to_them() {
    let moved: CodeOf = |s, [at, frequencies]| {
        let two = s.int(2);
        let at = s.op("Add", &[at, &two]);
        plain(s, [&at, frequencies])
    };
    let moved_as_float: CodeOf = |s, [at, frequencies]| {
        let (at, two) = (s.cast(at, DType::F32), s.float(2.0));
        let at = s.op("Add", &[&at, &two]);
        waves(s, &at, frequencies)
    };
    // Cosines are sines of a quarter more.
    let phases: CodeOf = |s, [at, frequencies]| {
        let at = s.cast(at, DType::F32);
        let angles = s.op("Mul", &[&at, frequencies]);
        let quarter = s.float(std::f64::consts::FRAC_PI_2);
        let later = s.op("Add", &[&angles, &quarter]);
        let angles = s.concat(&[&angles, &later], 1);
        s.op("Sin", &[&angles])
    };
    for (code, offset) in [
        (plain as CodeOf, 0.0),
        (moved, 2.0),
        (moved_as_float, 2.0),
        (phases, 0.0),
    ] {
        for factor in [2.0, 1.5, 0.5] {
            let model = with(code);
            let (after, done) = done(&model, &divided_by(factor)).unwrap();
            let half = HIDDEN / 2;
            let want = (0..8 * HIDDEN).map(|i| {
                let (token, column) = ((i / HIDDEN) as f64, i % HIDDEN);
                let frequency = 1e4_f64.powf(-((column % half) as f64) / half as f64);
                let angle = (token + offset) / factor * frequency;
                if column < half {
                    angle.sin()
                } else {
                    angle.cos()
                }
            });
            let far = |got: &[f64]| {
                let pairs = got.iter().zip(want.clone());
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            };
            assert!(far(&added(&after)) < 1e-5);
            assert!(far(&added(&model)) > 0.1, "control");
            assert_eq!(done.report.edits.len(), 1);
            let found = detect(&after, &Options::default());
            let Encoding::Sinusoidal(code) = &found.findings[0].encoding else {
                panic!("{:?}", found.findings[0].encoding);
            };
            assert!((code.factor - factor).abs() < 1e-3 && code.max_positions.is_none());
        }
    }
}

#[test]
fn a_second_factor_is_refused_unless_it_is_allowed() {
    let (model, _) = done(&with(plain), &divided_by(2.0)).unwrap();
    let (same, _) = done(&model, &divided_by(2.0)).unwrap();
    assert_eq!(added(&same), added(&model), "as it is asked for");
    let mut request = divided_by(4.0);
    let why = done(&model, &request).unwrap_err();
    assert!(why.contains("sinusoidal is scaled already, by 2"), "{why}");
    request.allowances.allow_rescale = true;
    let (twice, _) = done(&model, &request).unwrap();
    let found = detect(&twice, &Options::default());
    let Encoding::Sinusoidal(code) = &found.findings[0].encoding else {
        panic!("{:?}", found.findings[0].encoding);
    };
    assert!((code.factor - 8.0).abs() < 1e-2);
}

#[test]
fn what_a_factor_would_change_besides_is_refused() {
    let returned: CodeOf = |s, [at, frequencies]| {
        let code = plain(s, [at, frequencies]);
        s.output(&code);
        code
    };
    let why = done(&with(returned), &divided_by(2.0)).unwrap_err();
    assert!(why.contains("would change with them"), "{why}");
    // The same places may be read for something else.
    let counted: CodeOf = |s, [at, frequencies]| {
        let at = s.cast(at, DType::F32);
        s.output(&at);
        waves(s, &at, frequencies)
    };
    assert!(done(&with(counted), &divided_by(2.0)).is_ok(), "control");
}

#[test]
fn requests_that_computed_sines_do_not_take_are_refused() {
    let said = |change: fn(&mut Request)| {
        let mut request = divided_by(2.0);
        change(&mut request);
        done(&with(plain), &request).unwrap_err()
    };
    let why = said(|request| request.scale = Some("tile".parse().unwrap()));
    assert!(
        why.contains("`scale` tile applies to learned tables only"),
        "{why}"
    );
    let why = said(|request| {
        request.parameters.factor = None;
        request.parameters.max_length = Some(64);
    });
    assert!(why.contains("give `factor`"), "{why}");
    let why = said(|request| request.parameters.factor = Some(0.0));
    assert!(why.contains("`factor` cannot be 0"), "{why}");
}

#[test]
fn sines_that_an_earlier_rewrite_inserted_keep_their_record() {
    let request = Request {
        to: Some(Kind::Sinusoidal),
        ..Request::default()
    };
    let (inserted, _) = done(&with(plain), &request).unwrap();
    let why = done(&inserted, &divided_by(2.0)).unwrap_err();
    assert!(why.contains("its record would no longer hold"), "{why}");
}
