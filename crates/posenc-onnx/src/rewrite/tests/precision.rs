//! Models that compute parts of a layer in another type.

use posenc_encodings::kind::Kind;
use posenc_ir::{Applied, DType, Model};

use crate::detect::context::Context;
use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::prove::types;
use crate::request::Request;
use crate::rewrite::rewrite;

/// The types of the sum of embeddings and a table, of the product of queries and keys, and of the
/// product of weights and values; everything else is in single precision.
#[derive(Clone, Copy, Debug)]
struct Types {
    stream: DType,
    product: DType,
    weighted: DType,
}

fn model(types: Types) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let rows = s.typed(
        types.stream,
        &[16, HIDDEN],
        (0..16 * HIDDEN).map(|i| (i as f64).sin()),
    );
    let shape = s.op("Shape", &[&x]);
    let [zero, one] = [0, 1].map(|n| s.ints(&[n]));
    let length = s.gather(&shape, &one, 0);
    let rows = s.op("Slice", &[&rows, &zero, &length, &zero]);
    let x = s.cast(&x, types.stream);
    let x = s.op("Add", &[&x, &rows]);
    let x = s.cast(&x, DType::F32);
    let [q, k, v] = [(); 3].map(|()| s.headed(&x));
    let [q, k] = [q, k].map(|x| s.cast(&x, types.product));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let scores = s.cast(&scores, DType::F32);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let [weights, v] = [weights, v].map(|x| s.cast(&x, types.weighted));
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.cast(&y, DType::F32);
    let y = s.merged(&y);
    let y = s.op("Add", &[&x, &y]);
    s.model(17, &[&y])
}

/// The types of the first operands of such nodes, after a check of every node.
fn operands(model: &Model, op: &str) -> Result<Vec<DType>, String> {
    let found = detect(model, &Options::default());
    let context = Context {
        model,
        found: &found,
    };
    let all = Applied {
        added: model.graph().nodes().map(|(id, _)| id).collect(),
        ..Applied::default()
    };
    types::check(&context, &all).map_err(|why| why.to_string())?;
    let nodes = model.graph().nodes().filter(|(_, node)| node.is(op));
    let operands = nodes.filter_map(|(_, node)| Some(context.dtype(node.input(0)?)));
    Ok(operands.collect())
}

#[test]
fn what_is_inserted_has_the_type_of_what_it_meets() {
    let [half, single, double] = [DType::F16, DType::F32, DType::F64];
    for [stream, product, weighted] in [
        [double, single, half],
        [single, double, single],
        [half, half, single],
        [DType::BF16; 3],
    ] {
        let types = Types {
            stream,
            product,
            weighted,
        };
        let before = model(types);
        assert_eq!(operands(&before, "Conv"), Ok(vec![]), "{types:?}");
        // One for each way that an encoding enters.
        let kinds = [
            Kind::Shaw,
            Kind::TransformerXl,
            Kind::Conv,
            Kind::Rope,
            Kind::Alibi,
        ];
        for kind in kinds {
            let request = Request {
                to: Some(kind),
                ..Request::default()
            };
            let mut after = before.clone();
            let done = rewrite(&mut after, &request);
            if let Err(why) = done {
                panic!("{kind} of {types:?}: {why}");
            }
            let found = operands(&after, "Conv");
            let want = if kind == Kind::Conv {
                // No runtime has a convolution in double, and no operator one in bfloat16.
                vec![if stream == half { half } else { single }]
            } else {
                vec![]
            };
            assert_eq!(found, Ok(want), "{kind} of {types:?}");
            let sums = operands(&after, "Einsum").unwrap();
            assert!(!sums.contains(&DType::BF16), "{kind} of {types:?}");
            assert_eq!(!sums.is_empty(), kind == Kind::Shaw, "{kind} of {types:?}");
        }
    }
}
