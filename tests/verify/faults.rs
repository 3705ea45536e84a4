//! Planted faults: each is reported at its sites and nowhere else.

use posenc_ir::{Model, Weights};

use super::{failing, model, revalued, rotations, runtimes, scores, verified};

/// A change of a rewritten model.
pub(super) struct Fault {
    /// The rewrite.
    pub(super) of: &'static str,
    pub(super) what: &'static str,
    pub(super) change: Change,
    pub(super) at: At,
}

pub(super) enum Change {
    /// Passages of the text, each of which occurs once, and what they become.
    Text(&'static [(&'static str, &'static str)]),
    /// Other values of a constant.
    Values(&'static str, fn(Vec<f64>) -> Vec<f64>),
}

/// Where a fault has to be reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum At {
    /// At both sites.
    Both,
    /// At the first site and not at the second.
    First,
    /// At the second site and not at the first.
    Second,
    /// At an output and at no site.
    Output(&'static str),
}

impl Fault {
    pub(super) fn plant(&self) -> Model {
        let model = model(self.of);
        match &self.change {
            Change::Values(name, values) => revalued(model, name, values),
            Change::Text(edits) => {
                let mut text = model.text(Weights::Full).to_string();
                for (from, to) in *edits {
                    let count = text.matches(from).count();
                    assert_eq!(count, 1, "{}, {}: {from}", self.of, self.what);
                    text = text.replace(from, to);
                }
                Model::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", self.what))
            }
        }
    }

    /// Why it was not reported as it should be.
    fn missed(&self, failed: &[String], sites: &[String]) -> Option<String> {
        let has = |name: &str| failed.iter().any(|f| f == name);
        let [first, second] = [0, 1].map(|i| has(&sites[i]));
        let right = match self.at {
            At::Both => first && second,
            At::First => first && !second,
            At::Second => second && !first,
            At::Output(name) => has(name) && !first && !second,
        };
        let Self { of, what, at, .. } = self;
        (!right).then(|| format!("{of}: {what}: {failed:?}, not {at:?}"))
    }
}

#[test]
fn every_planted_fault_is_reported_at_its_site_in_both_runtimes() {
    let faults: Vec<&Fault> = rotations::FAULTS.iter().chain(&scores::FAULTS).collect();
    assert!(faults.len() >= 60, "{}", faults.len());
    let mut missed = vec![];
    for fault in &faults {
        let sites: Vec<String> = {
            let model = posenc_onnx::Model::checked(model(fault.of)).unwrap();
            let attention = model.inspect().attention;
            attention.into_iter().map(|site| site.name).collect()
        };
        let planted = fault.plant();
        for backend in runtimes() {
            let runtime = backend.name().to_owned();
            let report = verified(&planted, backend);
            assert!(!report.ok || failing(&report).is_empty());
            let is_number = |name: &String| name.starts_with("attention site");
            assert!(!failing(&report).iter().any(is_number), "{}", fault.what);
            let why = fault.missed(&failing(&report), &sites);
            missed.extend(why.map(|why| format!("{runtime}: {why}")));
        }
    }
    assert!(
        missed.is_empty(),
        "{} kinds:\n{}",
        faults.len(),
        missed.join("\n")
    );
}
