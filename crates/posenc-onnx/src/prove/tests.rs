use posenc_ir::{DType, Model, Tensor, Weights};
use posenc_runtime::{Backend, Fallback, Optimization, Provider, RuntimeError};

use super::run::RuntimeTarget;
use super::subject::Subject;
use super::testing::{Chosen, Evaluator, Fault, fixture};
use super::*;
use crate::detect::{Options, detect};
use crate::graph::ports::Lengths;
use crate::report::Run;

fn boxed(all: &[Evaluator]) -> Vec<Box<dyn Backend>> {
    let boxed = all.iter().cloned();
    boxed.map(|b| -> Box<dyn Backend> { Box::new(b) }).collect()
}

fn verify(
    model: &posenc_ir::Model,
    other: Option<&posenc_ir::Model>,
    options: &VerifyOptions,
    backends: &[Box<dyn Backend>],
) -> Result<crate::report::Verify, VerifyError> {
    verify_with(model, other, options, backends, None)
}

fn short() -> VerifyOptions {
    VerifyOptions {
        lengths: vec![1, 9],
        ..VerifyOptions::default()
    }
}

#[test]
fn a_model_equals_itself_in_two_runtimes_and_in_decode() {
    let backends = boxed(&[Evaluator::default(), Evaluator::default()]);
    for (name, sites, decodes) in [
        ("llama/torchscript", 8, false),
        ("llama/optimum", 8, true),
        ("bert/dynamo", 1, false),
    ] {
        let report = verify(&fixture(name), None, &short(), &backends).unwrap();
        let bad: Vec<&Run> = report.runs.iter().filter(|r| !r.ok).collect();
        assert!(report.ok, "{name}: {bad:#?}");
        assert_eq!(report.sites.len(), sites, "{name}");
        let stepped = report.runs.iter().filter(|r| r.output.contains("decode"));
        assert_eq!(stepped.count() > 0, decodes, "{name}");
        // The others are compared with the first run.
        assert_eq!(report.runs[0].bound, None, "{name}");
        assert!(report.runs.iter().any(|r| r.max_abs == Some(0.0)), "{name}");
    }
}

#[test]
fn a_runtime_that_computes_something_else_is_reported() {
    let faults: [(&str, Fault); 4] = [
        ("one element off", |y, _| y[3] += 0.01),
        ("no number", |y, _| y[3] = f64::NAN),
        ("order", |y, _| y.reverse()),
        ("shape", |_, d| d.swap(0, 1)),
    ];
    let model = fixture("bert/dynamo");
    for (name, fault) in faults {
        let faulty = Evaluator {
            fault: Some(fault),
            ..Evaluator::default()
        };
        let backends = boxed(&[Evaluator::default(), faulty]);
        let report = verify(&model, None, &short(), &backends).unwrap();
        assert!(!report.ok, "{name}");
        assert!(report.runs[0].ok, "{name}: the first run is right");
    }
    let alone = Evaluator {
        fault: Some(|y, _| y[0] = f64::NAN),
        ..Evaluator::default()
    };
    assert!(!verify(&model, None, &short(), &boxed(&[alone])).unwrap().ok);
}

#[test]
fn a_decode_step_that_differs_from_prefill_is_reported() {
    let faulty = Evaluator {
        // Only the step has outputs `[batch, 1, …]`.
        fault: Some(|y, d| {
            if d.get(1) == Some(&1) {
                y.iter_mut().for_each(|y| *y += 0.01);
            }
        }),
        ..Evaluator::default()
    };
    let options = VerifyOptions {
        lengths: vec![9],
        ..VerifyOptions::default()
    };
    let report = verify(&fixture("llama/optimum"), None, &options, &boxed(&[faulty])).unwrap();
    let failed: Vec<&Run> = report.runs.iter().filter(|r| !r.ok).collect();
    assert!(!failed.is_empty());
    assert!(failed.iter().all(|r| r.output.contains("decode")));
}

#[test]
fn tolerances_are_those_of_the_options() {
    let off = Evaluator {
        fault: Some(|y, _| y[3] += 0.01),
        ..Evaluator::default()
    };
    let backends = boxed(&[Evaluator::default(), off]);
    // Without an encoding, whose bounds are those of its formula.
    let model = fixture("mini/none");
    for (atol, ok) in [(0.02, true), (0.005, false)] {
        let options = VerifyOptions {
            atol: Some(atol),
            rtol: Some(0.0),
            ..short()
        };
        let report = verify(&model, None, &options, &backends).unwrap();
        assert_eq!(report.ok, ok, "{atol}");
    }
}

#[test]
fn another_model_differs_and_another_export_of_the_same_model_does_not() {
    let backends = boxed(&[Evaluator::default()]);
    let model = fixture("llama/torchscript");
    let same = fixture("llama/dynamo");
    let other = fixture("llama-yarn/torchscript");
    let report = verify(&model, Some(&same), &short(), &backends).unwrap();
    assert!(report.ok, "two exports of one model: {:#?}", report.runs);
    let options = VerifyOptions {
        bisect: Bisect::FirstFailure,
        ..short()
    };
    let report = verify(&model, Some(&other), &options, &backends).unwrap();
    assert!(!report.ok);
    let failed = report.runs.iter().find(|r| !r.ok).unwrap();
    // Scaled frequencies show before any layer.
    let place = failed.first_divergence.as_deref().unwrap();
    assert!(place.ends_with("rotary_emb/Expand"), "{place}");
}

#[test]
fn the_first_node_that_differs_between_two_runtimes_is_named() {
    let model = fixture("bert/dynamo");
    let graph = model.graph();
    let order = graph.order(graph.main()).unwrap();
    // Some matrix product in the middle of the model.
    let products = order.iter().filter(|id| graph.node(**id).is("MatMul"));
    let middle = *products.clone().nth(products.count() / 2).unwrap();
    let name = graph.name(graph.node(middle).output(0).unwrap()).to_owned();
    let faulty = Evaluator {
        spoiled: Some(Box::leak(name.into_boxed_str())),
        ..Evaluator::default()
    };
    let backends = boxed(&[Evaluator::default(), faulty]);
    let options = VerifyOptions {
        bisect: Bisect::FirstFailure,
        ..short()
    };
    let report = verify(&model, None, &options, &backends).unwrap();
    let failed = report.runs.iter().find(|r| !r.ok).unwrap();
    assert_eq!(failed.first_divergence, Some(graph.place(middle)));
    let around = &failed.neighbourhood;
    let first = around.iter().position(|near| near.is_first).unwrap();
    assert_eq!(around[first].node, graph.node_text(middle));
    assert!(around[first].max_abs > Some(0.9), "{around:#?}");
    // What it reads is right, and what reads it is shown.
    assert!(around[..first].iter().all(|near| near.ok != Some(false)));
    assert!(around.len() > first + 1, "{around:#?}");
}

/// Rotations are computed beside queries, which are equal.
#[test]
fn the_first_value_that_differs_between_two_models_is_named_whatever_is_equal_after_it() {
    let model = fixture("llama/optimum");
    let graph = model.graph();
    let positions = graph.find(graph.main(), "position_ids").unwrap();
    let clamped = |last: f64| {
        let mut other = model.clone();
        let mut out = graph.emitter(graph.main(), "clamped");
        let last = out.scalar("last", DType::I64, last);
        let least = out.op("Min", &[positions, last]);
        out.redirect(positions, least).unwrap();
        let patch = out.finish();
        other.commit(patch).unwrap();
        let options = VerifyOptions {
            bisect: Bisect::FirstFailure,
            ..short()
        };
        let backends = boxed(&[Evaluator::default()]);
        verify(&model, Some(&other), &options, &backends).unwrap()
    };
    let order = graph.order(graph.main()).unwrap();
    let mut reads = order.iter().filter(|id| {
        let node = graph.node(**id);
        node.is("Unsqueeze") && node.input(0) == Some(positions)
    });
    let first = *reads.next().unwrap();
    let runs = clamped(5.0).runs;
    let failed = runs.iter().find(|r| r.first_divergence.is_some()).unwrap();
    assert_eq!(failed.first_divergence, Some(graph.place(first)));
    let around = &failed.neighbourhood;
    let shown = around.iter().find(|near| near.is_first).unwrap();
    assert!(
        shown.ok == Some(false) && shown.max_abs >= Some(1.0),
        "{shown:?}"
    );
    // A control: positions beyond the clamp are not reached.
    let report = clamped(100.0);
    assert!(report.ok);
    assert!(report.runs.iter().all(|run| run.first_divergence.is_none()));
}

/// Takes no model, and says why.
#[derive(Clone, Debug)]
struct Refusing(&'static str);

impl Backend for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }

    fn version(&self) -> String {
        "0".to_owned()
    }

    fn load(
        &self,
        _: posenc_runtime::ModelSource<'_>,
        _: &posenc_runtime::Options,
    ) -> Result<Box<dyn posenc_runtime::Session>, RuntimeError> {
        Err(RuntimeError::unsupported("refusing", self.0))
    }
}

#[test]
fn a_runtime_that_refuses_is_named_and_counts_as_no_comparison() {
    let model = fixture("llama/torchscript");
    let both: [Box<dyn Backend>; 2] = [Box::new(Refusing("no")), Box::new(Evaluator::default())];
    let report = verify(&model, None, &short(), &both).unwrap();
    assert!(report.ok);
    let warning = &report.warnings[0];
    assert!(warning.starts_with("skipped: refusing"), "{warning}");
    assert!(report.runs.iter().all(|r| r.runtime == "evaluator"));
    let named = VerifyOptions {
        providers: vec![(0, Provider::Cpu)],
        ..short()
    };
    let error = verify(&model, None, &named, &both).unwrap_err();
    assert_eq!(error.reason(), Reason::Unsupported);
    let refusing = ["neither", "it never does"].map(|why| Box::new(Refusing(why)) as _);
    let error = verify(&fixture("bert/dynamo"), None, &short(), &refusing).unwrap_err();
    assert_eq!(error.reason(), Reason::Unsupported);
    assert!(error.to_string().contains("it never does"), "{error}");
    let error = verify(&model, None, &short(), &[]).unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable);
    let missing = VerifyOptions {
        providers: vec![(5, Provider::Cpu)],
        ..short()
    };
    let error = verify(&model, None, &missing, &both).unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable);
}

/// A model with rotations whose softmaxes are powers of logarithms.
fn respelled() -> Model {
    let mut text = fixture("mini/rope").text(Weights::Full).to_string();
    for (i, scores) in ["add_3", "add_8"].iter().enumerate() {
        let name = ["softmax", "softmax_1"][i];
        let old = format!("{name} = Softmax <axis = -1>({scores})");
        assert_eq!(text.matches(&old).count(), 1, "{old}");
        let new = format!("e{i} = LogSoftmax <axis = -1>({scores})\n {name} = Exp(e{i})");
        text = text.replace(&old, &new);
    }
    Model::parse(&text).unwrap()
}

#[test]
fn rotations_of_a_model_in_another_spelling_are_compared() {
    let model = respelled();
    let as_it_is = detect(&model, &Options::default());
    assert!(
        as_it_is.rotary.is_empty(),
        "the control has to be respelled"
    );
    let run = |all: &[Evaluator]| verify(&model, None, &short(), &boxed(all)).unwrap();
    let report = run(&[Evaluator::default()]);
    assert!(report.ok, "{:#?}", report.sites);
    // Sites of one name share a line.
    let quantities: Vec<&str> = report.sites.iter().map(|s| &*s.quantity).collect();
    assert_eq!(quantities[..4], ["cos", "sin", "q", "k"]);
    let off: Fault = |y, _| y.iter_mut().for_each(|y| *y *= 1.01);
    let report = run(&[Evaluator {
        fault: Some(off),
        ..Evaluator::default()
    }]);
    assert!(report.sites.iter().any(|s| !s.ok), "{:#?}", report.sites);
}

#[test]
fn a_runtime_that_runs_no_rotation_is_named() {
    let model = fixture("mini/rope");
    let both: [Box<dyn Backend>; 2] = [Box::new(Evaluator::default()), Box::new(Refusing("no"))];
    let found = detect(&model, &Options::default());
    let each: Vec<&dyn Backend> = both.iter().map(AsRef::as_ref).collect();
    let (rotations, refused) = rotations::rotations(&model, &found, &each).unwrap();
    assert_eq!(rotations.checks.len(), 8);
    assert_eq!(refused.len(), 1);
    let report = verify(&model, None, &short(), &both).unwrap();
    let of_site = |w: &&String| w.starts_with("skipped: ") && w.contains(&refused[0].to_string());
    assert_eq!(report.warnings.iter().filter(of_site).count(), 1);
}

/// A runtime that has a GPU and no processor.
#[derive(Clone, Debug)]
struct Device(Evaluator);

impl Backend for Device {
    fn name(&self) -> &'static str {
        "device"
    }

    fn version(&self) -> String {
        "0".to_owned()
    }

    fn load(
        &self,
        model: posenc_runtime::ModelSource<'_>,
        options: &posenc_runtime::Options,
    ) -> Result<Box<dyn posenc_runtime::Session>, RuntimeError> {
        match &options.provider {
            provider if *provider == Provider::cuda(1) => self.0.load(model, options),
            _ => Err(RuntimeError::unavailable("cpu", "there is none")),
        }
    }
}

#[test]
fn everything_runs_on_the_provider_that_is_named() {
    let off: Fault = |y, _| y.iter_mut().for_each(|y| *y *= 1.01);
    let faulty = Evaluator {
        fault: Some(off),
        ..Evaluator::default()
    };
    let on = |device: u32, evaluator: &Evaluator| {
        let options = VerifyOptions {
            providers: vec![(0, Provider::cuda(device))],
            ..short()
        };
        let device: [Box<dyn Backend>; 1] = [Box::new(Device(evaluator.clone()))];
        ["mini/rope", "mini/alibi"].map(|name| verify(&fixture(name), None, &options, &device))
    };
    for report in on(1, &Evaluator::default()) {
        let report = report.unwrap();
        assert!(report.ok && !report.sites.is_empty());
        assert!(report.runs.iter().all(|run| run.provider == "cuda:1"));
    }
    for report in on(1, &faulty) {
        assert!(report.unwrap().sites.iter().any(|site| !site.ok));
    }
    for refused in on(0, &Evaluator::default()) {
        assert_eq!(refused.unwrap_err().reason(), Reason::Unavailable);
    }
}

#[test]
fn outputs_of_padding_may_differ_and_are_said_to() {
    let model = fixture("bert/dynamo");
    let [padding, token]: [Fault; 2] = [
        |y, d| y[(d[1] + d[1] - 1) * d[2]] += 0.5,
        |y, d| y[(d[1] + d[1] / 2) * d[2]] += 0.5,
    ];
    for (fault, ok) in [(padding, true), (token, false)] {
        // Where the last token of the second sequence is padding.
        let is_padded = |feeds: &[(&str, Tensor)]| {
            let mask = feeds.iter().find(|(name, _)| *name == "attention_mask");
            mask.is_some_and(|(_, mask)| mask.get_f64(mask.len() - 1) == Some(0.0))
        };
        let other = Evaluator {
            fault: Some(fault),
            only: Some(is_padded),
            ..Evaluator::default()
        };
        let options = VerifyOptions {
            lengths: vec![8],
            ..VerifyOptions::default()
        };
        let backends = boxed(&[Evaluator::default(), other]);
        let report = verify(&model, None, &options, &backends).unwrap();
        assert_eq!(report.ok, ok);
        let said = report
            .unchecked
            .iter()
            .any(|why| why.starts_with("outputs of padding"));
        assert_eq!(said, ok, "{:?}", report.unchecked);
    }
    // What is no number, in the only run or in one of two models, is wrong in padding too.
    let nan = Evaluator {
        fault: Some(|y, d| {
            if d[0] > 1 {
                y[(d[1] + d[1] - 1) * d[2]] = f64::NAN;
            }
        }),
        ..Evaluator::default()
    };
    for other in [None, Some(&model)] {
        let report = verify(&model, other, &short(), &boxed(std::slice::from_ref(&nan))).unwrap();
        assert!(!report.ok, "{:?}", report.unchecked);
    }
}

#[test]
fn sequences_alone_and_with_padding_on_the_left_are_run_too() {
    let backends = boxed(&[Evaluator::default()]);
    let model = fixture("llama-posids/torchscript");
    let report = verify(&model, Some(&model), &short(), &backends).unwrap();
    let runs = |batch: usize, padding: &str| {
        let of = |run: &&Run| run.batch == batch && run.padding == padding;
        report.runs.iter().filter(of).count()
    };
    let counts = [runs(2, "right"), runs(1, "none"), runs(2, "left")];
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    // A control: a fault in the second sequence alone.
    let other = Evaluator {
        fault: Some(|y, dims| {
            if dims[0] > 1 {
                *y.last_mut().unwrap() += 1.0;
            }
        }),
        ..Evaluator::default()
    };
    let both = boxed(&[Evaluator::default(), other]);
    let report = verify(&model, None, &short(), &both).unwrap();
    let bad = report.runs.iter().filter(|run| !run.ok);
    assert!(bad.clone().any(|run| run.padding == "left"));
    assert!(bad.clone().all(|run| run.batch == 2) && bad.count() > 1);
}

#[test]
fn what_a_model_need_not_run_is_left_out_by_name() {
    let model = fixture("llama-posids/torchscript");
    let with = |fails: Chosen| {
        let backend = Evaluator {
            fails: Some(fails),
            ..Evaluator::default()
        };
        [None, Some(&model)].map(|other| {
            verify(
                &model,
                other,
                &short(),
                &boxed(std::slice::from_ref(&backend)),
            )
        })
    };
    let is_single = |feeds: &[(&str, Tensor)]| feeds[0].1.dims() == [1, 9];
    for report in with(is_single) {
        let report = report.unwrap();
        let said = |why: &String| why.starts_with("one sequence of 9 tokens, because");
        assert!(report.unchecked.iter().any(said), "{:?}", report.unchecked);
        let is_moved = |run: &Run| run.output.contains("moved by");
        let rows = report.runs.iter().filter(|run| !is_moved(run));
        assert!(rows.clone().count() > 0);
        assert!(rows.clone().all(|run| run.ok && run.batch == 2));
    }
    // A control: the usual runs have to be done.
    for report in with(|feeds| feeds[0].1.dims()[1] == 9) {
        assert!(report.is_err());
    }
}

#[test]
fn padded_keys_are_hidden_from_the_first_tokens() {
    // A control of the feeds: padding must not change the tokens that count.
    let model = fixture("bert/dynamo");
    let found = detect(&model, &Options::default());
    let at = Lengths {
        batch: 2,
        sequence: 8,
        past: 0,
    };
    let of = |padding| {
        let fed = feeds::feeds(model.graph(), &found.ports, at, padding).unwrap();
        let subject = Subject::new(&model, &found, &short()).unwrap();
        let target = RuntimeTarget {
            backend: &Evaluator::default(),
            provider: Provider::Cpu,
            fallback: Fallback::Allowed,
        };
        let session = subject.load(&target, Optimization::On).unwrap();
        let got = run::run(session.unwrap().as_mut(), &fed, "test").unwrap();
        let first: &Tensor = &got[0].1;
        first.to_f64s().unwrap()
    };
    let whole = of(feeds::Padding::None);
    let half = whole.len() / 2;
    for padding in [feeds::Padding::Right, feeds::Padding::Left] {
        let padded = of(padding);
        assert_eq!(padded[..half], whole[..half]);
        assert_ne!(padded[half..], whole[half..]);
    }
}
