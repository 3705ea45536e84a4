use posenc_encodings::kind::Kind;
use serde_json::{Value, json};

fn of(kind: Kind, params: Value) -> String {
    let Value::Object(params) = params else {
        panic!("parameters are an object");
    };
    kind.describe(&params)
}

fn check(cases: impl IntoIterator<Item = (Kind, Value, &'static str)>) {
    for (kind, params, want) in cases {
        assert_eq!(of(kind, params), want, "{kind}");
    }
}

#[test]
fn rotations() {
    let yarn = json!({"type": "yarn", "factor": 4.0, "original_length": 64,
                      "original_length_range": [63, 198], "exact": false});
    let llama3 = json!({"type": "llama3", "factor": 8.0, "original_length": 64,
                        "original_length_range": [64, 64]});
    let of = |theta: f64, rotary: usize, layout: &str, factor: f64, scaling: Value| {
        json!({"theta": theta, "head_dim": 16, "rotary_dim": rotary, "layout": layout,
               "attention_factor": factor, "scaling": scaling})
    };
    check([
        (
            Kind::Rope,
            of(1e4, 16, "half", 1.0, json!(null)),
            "θ 10000, all 16 elements, halves",
        ),
        (
            Kind::Rope,
            of(5e5, 8, "interleaved", 1.138629, yarn),
            "θ 500000, 8 of 16 elements, interleaved, yarn × 4 from 64 (63 to 198), cos and sin × 1.1386",
        ),
        (
            Kind::Rope,
            of(1e4, 16, "half", 0.999999, llama3),
            "θ 10000, all 16 elements, halves, llama3 × 8 from 64",
        ),
        (
            Kind::Rope,
            json!({"theta": null, "rotary_dim": 8, "head_dim": null, "layout": null,
                   "scaling": {"type": "custom", "inv_freq": [1.0, 0.5, 0.25, 0.125, 0.0625]}}),
            "8 elements, custom (inv freq 1 0.5 0.25 0.125 0.0625)",
        ),
        (
            Kind::Rope,
            json!({"theta": 100.0, "head_dim": 16, "rotary_dim": 16, "layout": "half",
                   "grid": [4, 4], "prefix": 5, "first_feature": 32}),
            "θ 100, all 16 elements, from element 32 on, halves, by rows and columns of 5 prefix + 4 × 4 grid",
        ),
        (
            Kind::Rope,
            json!({"theta": 1e6, "mrope_section": [16, 24, 24], "mrope_interleaved": false}),
            "θ 1000000, 16 + 24 + 24 pairs of 3 positions",
        ),
        (
            Kind::Rope,
            json!({"pairs": [[0, 3], [1, 2]]}),
            "pairs (0 3) (1 2)",
        ),
    ]);
}

#[test]
fn tables_sinusoids_and_convolutions() {
    let learned = |usable: usize, rows: usize, offset: usize, prefix: usize, grid: Value| {
        json!({"max_positions": usable, "table_rows": rows, "dim": 60, "offset": offset,
               "prefix": prefix, "grid": grid})
    };
    let sinusoid = |denominator: &str, more: Value| {
        let mut params = json!({"dim": 64, "layout": "half", "base": 10000.0,
                                "freq_denominator": denominator, "max_positions": 50, "offset": 0});
        let Value::Object(more) = more else {
            panic!("parameters are an object");
        };
        params.as_object_mut().unwrap().extend(more);
        params
    };
    check([
        (
            Kind::Learned,
            learned(64, 64, 0, 0, json!(null)),
            "64 rows, width 60",
        ),
        (
            Kind::Learned,
            learned(64, 66, 2, 0, json!(null)),
            "rows 2 to 65 of 66, width 60",
        ),
        (
            Kind::Learned,
            learned(64, 66, 0, 0, json!(null)),
            "rows 0 to 63 of 66, width 60",
        ),
        (
            Kind::Learned,
            learned(17, 17, 0, 1, json!([4, 4])),
            "17 rows: 1 prefix + 4 × 4 grid, width 60",
        ),
        (
            Kind::Learned,
            learned(64, 64, 0, 0, json!([8, 8])),
            "64 rows: 8 × 8 grid, width 60",
        ),
        (
            Kind::Learned,
            learned(18, 18, 0, 2, json!(null)),
            "18 rows, 2 of them prefix, width 60",
        ),
        (
            Kind::Sinusoidal,
            sinusoid("half_dim", json!({})),
            "50 rows, width 64, sines then cosines, frequencies 10000^(-i/32)",
        ),
        (
            Kind::Sinusoidal,
            sinusoid(
                "half_dim-1",
                json!({"layout": "interleaved", "cosines_first": true, "offset": 2,
                       "max_positions": null, "factor": 4.0}),
            ),
            "computed, width 64, interleaved, cosines first, frequencies 10000^(-i/31), positions from 2, positions ÷ 4",
        ),
        (
            Kind::Sinusoidal,
            sinusoid(
                "half_dim",
                json!({"grid": [5, 10], "prefix": 0, "order": "xy", "normalized": true}),
            ),
            "50 rows: 5 × 10 grid, width 64, sines then cosines, frequencies 10000^(-i/16), columns before rows, coordinates up to 2π",
        ),
        (
            Kind::Conv,
            json!({"kernel": 16, "groups": 4}),
            "kernel 16, 4 groups",
        ),
        (
            Kind::Conv,
            json!({"kernel": [3, 3], "groups": 1}),
            "kernel 3 × 3, 1 group",
        ),
        (Kind::Conv, json!({}), ""),
    ]);
}

#[test]
fn what_acts_by_distance() {
    let bias = |distance: Value, both: bool| json!({"num_buckets": 8, "max_distance": distance, "bidirectional": both, "heads": 4});
    let shaw = |distance: Value, query: bool| json!({"max_distance": distance, "key": true, "value": false, "query": query});
    check([
        (
            Kind::Alibi,
            json!({"heads": 2, "slopes": [0.0625, 0.00390625], "symmetric": null}),
            "slopes 0.0625 0.0039062",
        ),
        (
            Kind::Alibi,
            json!({"heads": 5, "slopes": [0.5, 0.25, 0.125, 0.0625, 0.03125], "symmetric": true}),
            "5 slopes 0.5 to 0.03125, symmetric",
        ),
        (
            Kind::Alibi,
            json!({"heads": 5, "slopes": [0.25, 0.0625, 0.015625, 0.00390625, 0.5], "symmetric": false}),
            "slopes 0.25 0.0625 0.015625 0.0039062 0.5, signed distance",
        ),
        (
            Kind::T5Bias,
            bias(json!(20), true),
            "8 buckets up to distance 20, both directions, 4 heads",
        ),
        (
            Kind::T5Bias,
            bias(json!(null), false),
            "8 buckets up to an unknown distance, earlier keys only, 4 heads",
        ),
        (
            Kind::T5Bias,
            json!({"num_buckets": 8, "max_distance": 20, "max_distance_range": [19, 24], "exact": false}),
            "8 buckets up to distance 20 (19 to 24)",
        ),
        (
            Kind::RelativeBias,
            json!({"max_distance": null, "window": [4, 4], "heads": [2, 2, 4, 4]}),
            "window 4 × 4, 2 and 4 heads",
        ),
        (
            Kind::RelativeBias,
            json!({"max_distance": 16, "window": null, "heads": 1}),
            "up to distance 16, 1 head",
        ),
        (
            Kind::Shaw,
            shaw(json!(63), true),
            "key and query terms up to distance 63",
        ),
        (
            Kind::Shaw,
            shaw(json!([8, 4]), false),
            "key terms up to distance 8 before and 4 after",
        ),
        (
            Kind::TransformerXl,
            json!({"heads": 4, "head_dim": 16, "clamp": null}),
            "4 heads, 16 elements each",
        ),
        (
            Kind::Disentangled,
            json!({"c2p": true, "p2c": true, "buckets": 8, "max_distance": 64}),
            "c2p and p2c terms, 8 buckets per direction up to distance 64",
        ),
        (
            Kind::Disentangled,
            json!({"c2p": true, "p2c": false, "buckets": null, "max_distance": 24}),
            "c2p terms up to distance 24",
        ),
        (
            Kind::Unknown,
            json!({"shape": "odd", "peak": null}),
            "shape odd, peak unknown",
        ),
    ]);
}
