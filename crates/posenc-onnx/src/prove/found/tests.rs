use posenc_ir::{DType, Tensor};

use super::*;
use crate::detect::Options;
use crate::detect::branches::branches;
use crate::prove::testing::{Evaluator, fixture};
use posenc_encodings::families::t5_bias::T5Bias;

/// Fixtures, and the beginning of the quantity that is compared in each.
const READ: [(&str, &str); 12] = [
    ("mini/learned", "rows 0 to 39 (learned)"),
    ("mini/sinusoidal", "rows 0 to 127 (sinusoidal)"),
    ("mini/sinusoidal-computed", "rows 0 to 2999 (sinusoidal)"),
    ("mini/alibi", "scores"),
    ("mini/t5", "scores (t5-bias: 32 buckets up to distance 128"),
    (
        "mini/relative-clipped",
        "scores (relative-bias: up to distance 9",
    ),
    (
        "mini/shaw",
        "scores (shaw: key and value terms up to distance 6",
    ),
    ("mini/transformer-xl", "scores (transformer-xl"),
    ("mini-encoder/t5", "scores (t5-bias: 32 buckets"),
    ("mini-encoder/shaw", "scores (shaw: key and value terms"),
    ("mini-cached/learned", "rows 5 to 39 (learned)"),
    ("mini-cached/t5", "scores (t5-bias: 32 buckets"),
];

fn held_by(model: &Model, branches: &[Branch], backend: &dyn Backend) -> Inserted {
    hold(model, None, branches, &[backend])
}

fn held(model: &Model) -> Inserted {
    let branches = branches(model, &Options::default());
    held_by(model, &branches, &Evaluator::default())
}

/// The model with other numbers in a constant.
fn revalued(model: &Model, name: &str, change: impl Fn(&mut [f64])) -> Model {
    let graph = model.graph();
    let value = graph.find(graph.main(), name).unwrap();
    let old = graph.constant(value).unwrap();
    let mut numbers = old.to_f64s().unwrap();
    change(&mut numbers);
    let tensor = Tensor::from_f64(old.dtype(), old.dims(), &numbers);
    let mut out = graph.emitter(graph.main(), "changed");
    out.replace_constant(value, graph.uses(value), tensor)
        .unwrap();
    model.clone().with_patch(out.finish()).unwrap().0
}

/// The model in which positions from `from` on read the row before theirs.
fn shifted(model: &Model, from: i64) -> Model {
    let graph = model.graph();
    let table = graph.find(graph.main(), "enc.pos.weight").unwrap();
    let at = graph.uses(table)[0];
    let places = graph.node(at.node).input(1).unwrap();
    let mut out = graph.emitter(graph.main(), "changed");
    let first = out.scalar("first", DType::I64, from as f64);
    let one = out.scalar("one", DType::I64, 1.0);
    let before = out.op("Sub", &[places, one]);
    let is_early = out.op("Less", &[places, first]);
    let wrong = out.op("Where", &[is_early, places, before]);
    let slot = graph.uses(places).iter().find(|u| u.node == at.node);
    out.redirect_use(places, *slot.unwrap(), wrong).unwrap();
    model.clone().with_patch(out.finish()).unwrap().0
}

#[test]
fn encodings_without_a_record_are_compared() {
    for (name, want) in READ {
        let all = held(&fixture(name));
        let quantities: Vec<&str> = all.held.checks.iter().map(|c| &*c.quantity).collect();
        let has = quantities.iter().any(|quantity| quantity.starts_with(want));
        assert!(has, "{name}: {quantities:?} {:?}", all.unchecked);
        assert!(
            all.held.checks.iter().all(|check| check.ok),
            "{name}: {all:?}"
        );
        assert_eq!(all.held.differences, [""; 0], "{name}");
        assert_eq!(all.unchecked, [""; 0], "{name}");
    }
}

#[test]
fn a_runtime_that_computes_another_number_fails() {
    let wrong = Evaluator {
        fault: Some(|numbers, _| {
            let middle = numbers.len() / 2;
            numbers[middle] += 0.01;
        }),
        ..Evaluator::default()
    };
    for (name, want) in READ {
        let model = fixture(name);
        let branches = branches(&model, &Options::default());
        let all = held_by(&model, &branches, &wrong);
        // Differences of two runs with the same fault cancel.
        if want == "scores" {
            continue;
        }
        let mut failed = all.held.checks.iter().filter(|check| !check.ok);
        assert!(
            failed.any(|c| c.quantity.starts_with(want)),
            "{name}: {all:?}"
        );
        assert!(!all.held.differences.is_empty(), "{name}");
    }
}

#[test]
fn a_position_that_reads_another_row_later_fails_where_it_is_added() {
    let model = shifted(&fixture("mini/learned"), 30);
    let all = held(&model);
    let failed: Vec<&SiteCheck> = all.held.checks.iter().filter(|check| !check.ok).collect();
    let [failed] = failed[..] else {
        panic!("{all:?}");
    };
    assert!(failed.site.contains("node_add_1") && failed.quantity.contains("learned"));
    // Where all positions do, the report names the rows.
    let all = held(&shifted(&fixture("mini/learned"), 1 << 20));
    assert!(all.held.checks.iter().all(|check| check.ok));
}

#[test]
fn rows_that_later_positions_share_are_not_compared() {
    let model = fixture("mini/learned");
    let graph = model.graph();
    let table = graph.find(graph.main(), "enc.pos.weight").unwrap();
    let at = graph.uses(table)[0];
    let places = graph.node(at.node).input(1).unwrap();
    for (op, last) in [("Min", 30.0), ("Mod", 31.0)] {
        let mut out = graph.emitter(graph.main(), "changed");
        let last = out.scalar("last", DType::I64, last);
        let bent = out.op(op, &[places, last]);
        let slot = graph.uses(places).iter().find(|u| u.node == at.node);
        out.redirect_use(places, *slot.unwrap(), bent).unwrap();
        let all = held(&model.clone().with_patch(out.finish()).unwrap().0);
        assert!(all.held.checks.is_empty(), "{op}: {all:?}");
        let [why] = &all.unchecked[..] else {
            panic!("{op}: {all:?}");
        };
        assert!(why.contains("later positions read rows"), "{why}");
    }
}

#[test]
fn an_altered_row_of_sines_is_named() {
    let model = revalued(&fixture("mini/sinusoidal"), "enc.pe", |numbers| {
        numbers[77 * 24 + 3] += 0.01;
    });
    let all = held(&model);
    let quantities: Vec<&str> = all.held.checks.iter().map(|c| &*c.quantity).collect();
    assert_eq!(quantities, ["rows 0 to 127 (learned)"]);
    let [why] = &all.held.differences[..] else {
        panic!("{all:?}");
    };
    assert!(
        why.contains("node_add_1") && why.contains("row 77 of the table"),
        "{why}"
    );
}

#[test]
fn the_slope_of_one_head_that_is_off_is_named() {
    let model = revalued(&fixture("mini/alibi"), "enc.slopes", |slopes| {
        slopes[1] *= 1.01
    });
    let all = held(&model);
    let [why] = &all.held.differences[..] else {
        panic!("{all:?}");
    };
    assert!(why.contains("the slopes of heads 1 are not"), "{why}");
}

/// The branches of a fixture in which another T5 bias was read.
fn with_other_buckets(model: &Model, change: impl Fn(&mut T5Bias)) -> Vec<Branch> {
    let mut all = branches(model, &Options::default());
    for finding in &mut all[0].found.findings {
        let Encoding::ScoreBias(_, bias) = &mut finding.encoding else {
            continue;
        };
        let own = (&**bias as &dyn std::any::Any).downcast_ref::<T5Bias>();
        let mut other = own.unwrap().clone();
        change(&mut other);
        *bias = Box::new(other);
    }
    all
}

#[test]
fn scores_of_other_buckets_than_those_that_were_read_fail_at_their_site() {
    let model = fixture("mini-encoder/t5");
    let changes: [fn(&mut T5Bias); 3] = [
        |bias| bias.max_distance = Some(100),
        |bias| bias.num_buckets = 30,
        |bias| bias.bidirectional = false,
    ];
    for change in changes {
        let branches = with_other_buckets(&model, change);
        let all = held_by(&model, &branches, &Evaluator::default());
        let failed = all.held.checks.iter().filter(|check| !check.ok);
        let sites: Vec<&str> = failed.map(|check| &*check.site).collect();
        let named = branches[0].found.attention.iter().map(|site| &*site.name);
        assert_eq!(sites, named.collect::<Vec<_>>());
    }
}

#[test]
fn a_moved_bucket_is_read_as_another_encoding() {
    let base = 100f64 / 16.0;
    let model = revalued(&fixture("mini/t5"), "val_93", |log| log[0] = base.ln());
    let all = held(&model);
    let mut quantities = all.held.checks.iter().map(|c| &*c.quantity);
    assert!(
        quantities.any(|q| q.contains("up to distance 100")),
        "{all:?}"
    );
}

#[test]
fn what_was_not_read_is_named_with_its_node() {
    let model = fixture("mini/t5");
    let mut branches = branches(&model, &Options::default());
    let finding = &mut branches[0].found.findings[0];
    finding.encoding = Encoding::Unknown;
    finding.evidence = vec!["its numbers are random".to_owned()];
    let place = model.graph().place(finding.node().unwrap());
    let all = held_by(&model, &branches, &Evaluator::default());
    assert!(all.held.checks.is_empty(), "{all:?}");
    let want = format!("an unknown encoding at {place}, because its numbers are random");
    assert_eq!(all.unchecked, [want]);
    assert!(held(&fixture("mini/conv")).unchecked[0].starts_with("conv against its formula"));
}
