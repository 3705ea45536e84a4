//! What quantization alone changes of outputs.
//!
//! Dynamic quantization takes the range of a whole batch: another sequence beside the first changes how the
//! numbers of the first are rounded, and nothing else. The outputs of the first sequence beside different ones
//! show how far correct results are apart.

use posenc_runtime::Session;

use super::feeds::{Padding, feeds, with_other_sequences};
use super::run::run;
use super::subject::Subject;
use super::tolerance::Level;
use crate::graph::ports::Lengths;

/// How many other sequences the first one is run beside.
const OTHERS: u64 = 3;

/// How far outputs of equal sequences are apart, by output.
#[derive(Clone, Debug, Default)]
pub(super) struct Noise(Vec<(String, Level)>);

impl Noise {
    /// That of an output.
    pub(super) fn of(&self, output: &str) -> Option<Level> {
        let own = self.0.iter().find(|(name, _)| name == output);
        own.map(|(_, level)| *level)
    }

    /// Whether any output changes.
    pub(super) fn is_any(&self) -> bool {
        self.0.iter().any(|(_, level)| level.max > 0.0)
    }
}

/// Runs the first sequence beside others. Empty for a model without quantization, and for one that takes a single
/// sequence.
pub(super) fn noise(subject: &Subject<'_>, session: &mut dyn Session, at: Lengths) -> Noise {
    let mut noise = Noise::default();
    let (graph, ports) = (subject.model.graph(), subject.ports());
    let at = ports.fit(Lengths {
        batch: at.batch.max(2),
        ..at
    });
    if !subject.is_quantized || at.batch < 2 {
        return noise;
    }
    // A model that does not run so tells nothing; that it runs is compared elsewhere.
    let Ok(fed) = feeds(graph, ports, at, Padding::None) else {
        return noise;
    };
    let Ok(first) = run(session, &fed, "noise") else {
        return noise;
    };
    for nth in 1..=OTHERS {
        let fed = with_other_sequences(graph, ports, &fed, nth);
        let other = fed.and_then(|fed| run(session, &fed, "noise").ok());
        let Some(other) = other else {
            return noise;
        };
        for ((name, a), (_, b)) in first.iter().zip(&other) {
            let is_batch = a.dims().first() == Some(&at.batch) && a.dims() == b.dims();
            let Some((a, b)) = a.to_f64s().zip(b.to_f64s()).filter(|_| is_batch) else {
                continue;
            };
            let own = a.len() / at.batch;
            let level = level(&a[..own], &b[..own]);
            match noise.0.iter_mut().find(|(other, _)| other == name) {
                Some((_, most)) => {
                    most.max = most.max.max(level.max);
                    most.rms = most.rms.max(level.rms);
                }
                None => noise.0.push((name.clone(), level)),
            }
        }
    }
    noise
}

/// How far numbers are apart; what is no number says nothing.
fn level(a: &[f64], b: &[f64]) -> Level {
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    let finite: Vec<f64> = differences.filter(|d| d.is_finite()).collect();
    let squares: f64 = finite.iter().map(|d| d * d).sum();
    Level {
        max: finite.iter().copied().fold(0.0, f64::max),
        rms: (squares / finite.len().max(1) as f64).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::Model;
    use posenc_runtime::{Backend, Fallback, Optimization, Provider};

    use super::*;
    use crate::detect::{Options, detect};
    use crate::prove::options::VerifyOptions;
    use crate::prove::run::RuntimeTarget;
    use crate::prove::testing::Evaluator;
    use crate::prove::verify_with;

    /// Embeddings in integers of 8 bits, with a range of the whole batch or with one that is stored.
    fn model(scale: &str) -> Model {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             g (float[batch,sequence,8] x) => (float[batch,sequence,8] y)\n\
             <float steps = {{127.0}}, float stored = {{0.0078125}}> {{\n\
             {scale}\n\
             parts = Div(x, s) whole = Round(parts) q = Cast <to = 3> (whole)\n\
             back = Cast <to = 1> (q) y = Mul(back, s)\n}}"
        );
        Model::parse(&text).unwrap()
    }

    fn dynamic() -> Model {
        model("size = Abs(x) most = ReduceMax <keepdims = 0> (size) s = Div(most, steps)")
    }

    fn of(model: &Model, batch: usize) -> Noise {
        let found = detect(model, &Options::default());
        let subject = Subject::new(model, &found, &VerifyOptions::default()).unwrap();
        let target = RuntimeTarget {
            backend: &Evaluator::default(),
            provider: Provider::Cpu,
            fallback: Fallback::Allowed,
        };
        let session = subject.load(&target, Optimization::On).unwrap();
        let at = Lengths {
            batch,
            sequence: 8,
            past: 0,
        };
        noise(&subject, session.unwrap().as_mut(), at)
    }

    #[test]
    fn the_range_of_the_batch_changes_the_first_sequence() {
        let found = of(&dynamic(), 2).of("y").unwrap();
        // Numbers up to 1 in 127 steps; half of one is rounded away.
        assert!(found.max > 1e-5 && found.max < 1.0 / 127.0, "{found:?}");
        assert!(found.rms > 0.0 && found.rms < found.max, "{found:?}");
    }

    #[test]
    fn a_stored_range_changes_nothing_and_one_sequence_tells_nothing() {
        let stored = of(&model("s = Identity(stored)"), 2);
        assert_eq!(stored.of("y"), Some(Level::default()));
        let single = |of: &str| of.replace("[batch,", "[1,");
        let text = dynamic().text(posenc_ir::Weights::Full).to_string();
        let alone = Model::parse(&single(&text)).unwrap();
        assert!(of(&alone, 1).of("y").is_none());
        // Where it takes several, one alone is judged by these.
        assert!(of(&dynamic(), 1).is_any());
    }

    #[test]
    fn runtimes_may_differ_by_it_and_not_by_more() {
        let judged = |fault: crate::prove::testing::Fault| {
            let off = Evaluator {
                fault: Some(fault),
                ..Evaluator::default()
            };
            let backends: [Box<dyn Backend>; 2] = [Box::new(Evaluator::default()), Box::new(off)];
            let options = VerifyOptions {
                lengths: vec![8],
                atol: Some(1e-6),
                rtol: Some(0.0),
                ..VerifyOptions::default()
            };
            let report = verify_with(&dynamic(), None, &options, &backends, None).unwrap();
            assert!(report.warnings.iter().any(|w| w.contains("quantization")));
            report.ok
        };
        assert!(judged(|y, _| y[3] += 1e-3));
        assert!(!judged(|y, _| y[3] += 0.1));
        assert!(!judged(|y, _| y.iter_mut().for_each(|y| *y += 8e-3)));
    }
}
