//! Operators that work element by element.

use super::*;

#[test]
fn functions_of_floats_have_their_values() {
    let e = std::f64::consts::E;
    let cases: [(&str, f64, f64); 24] = [
        ("Sqrt", 2.25, 1.5),
        ("Reciprocal", 4.0, 0.25),
        ("Exp", 1.0, e),
        ("Log", e, 1.0),
        ("Sin", 0.5, 0.479425538604203),
        ("Cos", 0.5, 0.8775825618903728),
        ("Tan", 0.5, 0.5463024898437905),
        ("Tanh", 0.5, 0.46211715726000973),
        ("Atan", 1.0, std::f64::consts::FRAC_PI_4),
        ("Floor", -1.5, -2.0),
        ("Ceil", -1.5, -1.0),
        ("Round", 2.5, 2.0),
        ("Round", -1.5, -2.0),
        ("Erf", 0.5, 0.5204998778130465),
        ("Erf", -3.0, -0.9999779095030014),
        ("Erf", 7.0, 1.0),
        ("Sigmoid", 0.0, 0.5),
        ("Softplus", 0.0, std::f64::consts::LN_2),
        ("Relu", -1.0, 0.0),
        ("LeakyRelu", -1.0, -0.01),
        ("Elu", -1.0, 1.0 / e - 1.0),
        ("Gelu", 1.0, 0.8413447460685429),
        ("HardSwish", 1.0, 2.0 / 3.0),
        ("Sign", -3.5, -1.0),
    ];
    for (name, x, want) in cases {
        let (_, got) = op(name).numbers(&[floats(&[], &[x])]);
        assert!((got[0] - want).abs() < 1e-14, "{name}({x}) = {}", got[0]);
    }
}

#[test]
fn arithmetic_broadcasts_and_keeps_the_element_type() {
    let row = ints(&[3], &[7, -7, 2]);
    let column = ints(&[2, 1], &[2, -2]);
    let cases = [
        ("Add", vec![9.0, -5.0, 4.0, 5.0, -9.0, 0.0]),
        ("Sub", vec![5.0, -9.0, 0.0, 9.0, -5.0, 4.0]),
        ("Mul", vec![14.0, -14.0, 4.0, -14.0, 14.0, -4.0]),
        ("Div", vec![3.0, -3.0, 1.0, -3.0, 3.0, -1.0]),
        ("Mod", vec![1.0, 1.0, 0.0, -1.0, -1.0, 0.0]),
        ("Min", vec![2.0, -7.0, 2.0, -2.0, -7.0, -2.0]),
        ("Max", vec![7.0, 2.0, 2.0, 7.0, -2.0, 2.0]),
    ];
    for (name, want) in cases {
        let got = op(name).numbers(&[row.clone(), column.clone()]);
        assert_eq!(got, (vec![2, 3], want), "{name}");
    }
    let (_, fmod) = op("Mod").int("fmod", 1).numbers(&[row, column]);
    assert_eq!(fmod, [1.0, -1.0, 0.0, 1.0, -1.0, 0.0]);
}

#[test]
fn integers_wrap_and_never_trap() {
    let low = list(&[i64::MIN]);
    for (name, other, want) in [
        ("Add", -1, i64::MAX),
        ("Sub", 1, i64::MAX),
        ("Mul", -1, i64::MIN),
        ("Div", -1, i64::MIN),
        ("Mod", -1, 0),
    ] {
        let out = op(name).run(&[low.clone(), list(&[other])]).unwrap();
        assert_eq!(out.scalar_i64(), Some(want), "{name}");
    }
    for name in ["Abs", "Neg"] {
        let out = op(name).run(std::slice::from_ref(&low)).unwrap();
        assert_eq!(out.scalar_i64(), Some(i64::MIN), "{name}");
    }
    for name in ["Div", "Mod"] {
        let out = op(name).run(&[list(&[4, 4]), list(&[2, 0])]).unwrap();
        assert_eq!(
            (out.dims, out.data.is_none()),
            (Some(vec![2]), true),
            "{name}"
        );
    }
}

#[test]
fn shapes_that_do_not_broadcast_are_refused() {
    for name in ["Add", "Equal", "Where", "Max", "And", "Pow"] {
        let condition = bools(&[2], &[true, false]);
        let inputs = match name {
            "Where" => vec![condition, count(&[3]), count(&[1])],
            "And" => vec![condition, bools(&[3], &[true; 3])],
            _ => vec![count(&[2]), count(&[3])],
        };
        assert_eq!(op(name).why(&inputs), Some(Why::Shapes), "{name}");
    }
}

#[test]
fn one_operand_of_unknown_content_leaves_dimensions_and_type() {
    for (name, dtype) in [
        ("Add", DType::F32),
        ("Pow", DType::F32),
        ("Less", DType::Bool),
        ("Sum", DType::F32),
    ] {
        let out = op(name).run(&[content(&[2, 1]), count(&[3])]).unwrap();
        assert_eq!(out.dtype, Some(dtype), "{name}");
        assert_eq!(
            (out.dims, out.data.is_none()),
            (Some(vec![2, 3]), true),
            "{name}"
        );
    }
    let unknown = Value::shaped(Some(DType::F32), None);
    let out = op("Add").run(&[unknown, count(&[3])]).unwrap();
    assert_eq!((out.dtype, out.dims), (Some(DType::F32), None));
}

#[test]
fn comparisons_and_logic_give_bools() {
    let (a, b) = (list(&[1, 2, 3]), list(&[2, 2, 2]));
    for (name, want) in [
        ("Equal", [0.0, 1.0, 0.0]),
        ("Less", [1.0, 0.0, 0.0]),
        ("LessOrEqual", [1.0, 1.0, 0.0]),
        ("Greater", [0.0, 0.0, 1.0]),
        ("GreaterOrEqual", [0.0, 1.0, 1.0]),
    ] {
        let out = op(name).run(&[a.clone(), b.clone()]).unwrap();
        assert_eq!(out.dtype, Some(DType::Bool), "{name}");
        assert_eq!(numbers(&out).1, want, "{name}");
    }
    let (a, b) = (bools(&[2], &[true, false]), bools(&[1], &[true]));
    for (name, want) in [("And", [1.0, 0.0]), ("Or", [1.0, 1.0]), ("Xor", [0.0, 1.0])] {
        assert_eq!(op(name).numbers(&[a.clone(), b.clone()]).1, want, "{name}");
    }
    assert_eq!(op("Not").numbers(&[a]).1, [0.0, 1.0]);
    let odd = floats(&[3], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    assert_eq!(
        op("IsNaN").numbers(std::slice::from_ref(&odd)).1,
        [1.0, 0.0, 0.0]
    );
    let up = op("IsInf").int("detect_negative", 0);
    assert_eq!(up.numbers(&[odd]).1, [0.0, 1.0, 0.0]);
}

#[test]
fn minima_and_maxima_propagate_nan() {
    for name in ["Min", "Max"] {
        for pair in [[f64::NAN, 1.0], [1.0, f64::NAN]] {
            let inputs = pair.map(|v| floats(&[], &[v]));
            assert!(op(name).numbers(&inputs).1[0].is_nan(), "{name} {pair:?}");
        }
    }
}

#[test]
fn casts_truncate_saturate_and_do_not_round_floats() {
    let x = floats(&[4], &[-2.7, 0.3, 300.9, f64::INFINITY]);
    let cases = [
        (DType::I64, vec![-2.0, 0.0, 300.0, i64::MAX as f64]),
        (DType::U8, vec![0.0, 0.0, 255.0, 255.0]),
        (DType::Bool, vec![1.0; 4]),
        (DType::F16, vec![-2.7, 0.3, 300.9, f64::INFINITY]),
    ];
    for (to, want) in cases {
        let cast = op("Cast").int("to", to.code().into());
        let out = cast.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!((out.dtype, numbers(&out).1), (Some(to), want), "{to}");
    }
    let wrapped = op("Cast").int("to", DType::I8.code().into());
    assert_eq!(wrapped.numbers(&[list(&[200, -200])]).1, [-56.0, 56.0]);
    for bad in [
        op("Cast"),
        op("Cast").int("to", 99),
        op("Cast").float("to", 1.0),
    ] {
        assert_eq!(
            bad.why(std::slice::from_ref(&x)),
            Some(Why::Attribute("to"))
        );
    }
    let like = op("CastLike")
        .run(&[x, Value::opaque(DType::I32, [5])])
        .unwrap();
    assert_eq!(like.dtype, Some(DType::I32));
}

#[test]
fn bounds_of_a_clip_are_inputs_or_attributes_and_may_be_omitted() {
    let x = floats(&[3], &[-2.0, 0.5, 2.0]);
    let low = floats(&[], &[-1.0]);
    let clip = op("Clip");
    assert_eq!(clip.numbers(&[x.clone(), low.clone()]).1, [-1.0, 0.5, 2.0]);
    let high_only = [x.clone(), left_out(), floats(&[], &[1.0])];
    assert_eq!(clip.numbers(&high_only).1, [-2.0, 0.5, 1.0]);
    let early = op("Clip").opset(6).float("max", 0.25);
    assert_eq!(
        early.numbers(std::slice::from_ref(&x)).1,
        [-2.0, 0.25, 0.25]
    );
    let open = clip.run(&[x, content(&[])]).unwrap();
    assert!(open.data.is_none());
}

#[test]
fn where_needs_the_data_of_both_sides() {
    let condition = bools(&[2, 1], &[true, false]);
    let (a, b) = (floats(&[3], &[1.0, 2.0, 3.0]), floats(&[], &[9.0]));
    let got = op("Where").numbers(&[condition.clone(), a.clone(), b]);
    assert_eq!(got, (vec![2, 3], vec![1.0, 2.0, 3.0, 9.0, 9.0, 9.0]));
    let out = op("Where").run(&[condition, a, content(&[])]).unwrap();
    assert_eq!((out.dims, out.data.is_none()), (Some(vec![2, 3]), true));
}

#[test]
fn step_functions_ignore_the_last_digits_of_f64() {
    let almost = floats(&[2], &[4.0 - 1e-15, -4.0 + 1e-15]);
    let to_int = op("Cast").int("to", DType::I64.code().into());
    for op in [op("Floor"), op("Ceil"), to_int.clone()] {
        let name = op.node.op();
        assert_eq!(
            op.numbers(std::slice::from_ref(&almost)).1,
            [4.0, -4.0],
            "{name}"
        );
    }
    let double = almost.with_dtype(DType::F64);
    assert_eq!(to_int.numbers(&[double]).1, [3.0, -3.0]);
    let apart = floats(&[1], &[3.999]);
    assert_eq!(to_int.numbers(&[apart]).1, [3.0]);
}
