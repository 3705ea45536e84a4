//! Payloads of initializers and attributes.

use super::*;
use crate::proto::{
    AttributeProto, SparseTensorProto, TensorProto, attribute_proto::AttributeType,
};

/// A tensor of so many elements with nothing in it.
fn empty(dtype: DType, dims: &[i64]) -> TensorProto {
    TensorProto {
        name: Some("t".to_owned()),
        dims: dims.to_vec(),
        data_type: Some(dtype.code()),
        ..Default::default()
    }
}

fn raw(dtype: DType, dims: &[i64], bytes: usize) -> TensorProto {
    TensorProto {
        raw_data: Some(vec![0; bytes].into()),
        ..empty(dtype, dims)
    }
}

/// With a list of so many values.
fn listed(dtype: DType, dims: &[i64], count: usize) -> TensorProto {
    let mut t = empty(dtype, dims);
    match dtype {
        DType::F32 | DType::Complex64 => t.float_data = vec![1.0; count],
        DType::F64 | DType::Complex128 => t.double_data = vec![1.0; count],
        DType::I64 => t.int64_data = vec![-1; count],
        DType::U32 | DType::U64 => t.uint64_data = vec![300; count],
        DType::String => t.string_data = vec!["a".into(); count],
        _ => t.int32_data = vec![1; count],
    }
    t
}

fn stored(tensor: TensorProto) -> ModelProto {
    changed(|g| g.initializer.push(tensor))
}

fn constant(tensor: TensorProto) -> ModelProto {
    let mut a = AttributeProto {
        name: Some("value".to_owned()),
        t: Some(tensor),
        ..Default::default()
    };
    a.set_type(AttributeType::Tensor);
    changed(|g| {
        let mut n = node("Constant", &[], &["k"]);
        n.attribute.push(a);
        g.node.push(n);
    })
}

#[test]
fn payloads_with_the_length_of_their_type_pass() {
    use DType::*;
    let cases = [
        ("raw", raw(F32, &[2, 3], 24)),
        ("a scalar", raw(F64, &[], 8)),
        ("nothing", empty(F32, &[0])),
        ("nothing along an axis", empty(F32, &[3, 0])),
        ("no strings", empty(String, &[0])),
        ("three of four bits", raw(I4, &[3], 2)),
        ("five of two bits", raw(U2, &[5], 2)),
        ("bools", raw(Bool, &[3], 3)),
        ("half", raw(BF16, &[3], 6)),
        ("eight bits", raw(F8E5M2FNUZ, &[3], 3)),
        ("floats", listed(F32, &[3], 3)),
        ("complex", listed(Complex64, &[3], 6)),
        ("doubles", listed(F64, &[3], 3)),
        ("double complex", listed(Complex128, &[3], 6)),
        ("long", listed(I64, &[3], 3)),
        ("unsigned", listed(U32, &[3], 3)),
        ("half in a list", listed(F16, &[3], 3)),
        ("bools in a list", listed(Bool, &[3], 3)),
        ("four bits in a list", listed(U4, &[3], 2)),
        ("strings", listed(String, &[3], 3)),
    ];
    for (name, tensor) in cases {
        assert_eq!(verdict(&stored(tensor.clone())), Ok(()), "{name}");
        assert_eq!(verdict(&constant(tensor)), Ok(()), "{name} as a constant");
    }
}

#[test]
fn other_payloads_are_refused() {
    use DType::*;
    let unknown = |code| TensorProto {
        data_type: Some(code),
        ..raw(F32, &[2], 8)
    };
    let other_list = TensorProto {
        int64_data: vec![1, 2],
        ..empty(F32, &[2])
    };
    let cases = [
        (
            "negative",
            raw(F32, &[-2], 8),
            "a dimension of the tensor is negative",
        ),
        (
            "overflow",
            raw(F32, &[i64::MAX, 4], 8),
            "the tensor's dimensions [9223372036854775807, 4] overflow",
        ),
        (
            "overflow of bytes",
            raw(F32, &[1 << 62], 0),
            "does not fit float",
        ),
        (
            "overflow to 4 bytes",
            raw(F32, &[(1 << 62) + 1], 4),
            "does not fit",
        ),
        ("type 99", unknown(99), "type of the tensor is unknown"),
        ("type 0", unknown(0), "type of the tensor is unknown"),
        ("type -5", unknown(-5), "type of the tensor is unknown"),
        ("no payload", empty(F32, &[2]), "0 "),
        (
            "short",
            raw(F32, &[2], 7),
            "the payload of 7 bytes does not fit float[2]",
        ),
        (
            "long",
            raw(F32, &[2], 9),
            "the payload of 9 bytes does not fit float[2]",
        ),
        (
            "short of four bits",
            raw(I4, &[5], 2),
            "does not fit int4[5]",
        ),
        (
            "raw strings",
            raw(String, &[1], 4),
            "does not fit string[1]",
        ),
        (
            "a value too many",
            listed(F32, &[2], 3),
            "3 values of float_data do not fit float[2]",
        ),
        (
            "a value too few",
            listed(I64, &[2], 1),
            "1 value of int64_data does not fit int64[2]",
        ),
        (
            "half of complex",
            listed(Complex64, &[2], 2),
            "2 values of float_data",
        ),
        (
            "four bits not packed",
            listed(U4, &[4], 4),
            "4 values of int32_data",
        ),
        (
            "two strings of three",
            listed(String, &[3], 2),
            "2 values of string_data",
        ),
        ("another list", other_list, "0 values of float_data"),
    ];
    for (name, tensor, want) in cases {
        let why = verdict(&stored(tensor.clone())).unwrap_err();
        assert!(
            why.contains(want) && why.starts_with("t: "),
            "{name}: {why}"
        );
        let why = verdict(&constant(tensor)).unwrap_err();
        assert!(why.contains(want), "{name} as a constant: {why}");
        assert!(why.starts_with("g/k_node"), "{name} as a constant: {why}");
    }
}

#[test]
fn every_tensor_of_an_attribute_is_checked() {
    let model = |edit: fn(&mut AttributeProto)| {
        let mut a = AttributeProto {
            name: Some("all".to_owned()),
            ..Default::default()
        };
        edit(&mut a);
        changed(|g| {
            g.node[0].domain = Some("com.example".to_owned());
            g.node[0].attribute.push(a);
        })
    };
    let fine = model(|a| a.tensors = vec![raw(DType::F32, &[1], 4); 2]);
    assert_eq!(verdict(&fine), Ok(()));
    let broken = model(|a| a.tensors = vec![raw(DType::F32, &[1], 4), raw(DType::F32, &[2], 4)]);
    let why = verdict(&broken).unwrap_err();
    assert!(
        why.starts_with("g/y_node.all: the payload of 4 bytes"),
        "{why}"
    );
}

#[test]
fn a_sparse_tensor_has_an_index_for_each_value() {
    let sparse = |values: TensorProto, indices: TensorProto| {
        changed(|g| {
            g.sparse_initializer.push(SparseTensorProto {
                values: Some(values),
                indices: Some(indices),
                dims: vec![4, 5],
            });
        })
    };
    let two = || raw(DType::F32, &[2], 8);
    let places = |dims: &[i64], bytes| raw(DType::I64, dims, bytes);
    for (name, indices) in [("flat", places(&[2], 16)), ("in full", places(&[2, 2], 32))] {
        assert_eq!(verdict(&sparse(two(), indices)), Ok(()), "{name}");
    }
    let short = raw(DType::F32, &[2], 4);
    for (name, values, indices, want) in [
        (
            "a place too few",
            two(),
            places(&[1], 8),
            "do not fit its dimensions",
        ),
        (
            "places of three axes",
            two(),
            places(&[2, 3], 48),
            "do not fit its dimensions",
        ),
        (
            "short values",
            short,
            places(&[2], 16),
            "the payload of 4 bytes",
        ),
        (
            "short places",
            two(),
            places(&[2], 8),
            "the payload of 8 bytes",
        ),
    ] {
        let why = verdict(&sparse(values, indices)).unwrap_err();
        assert!(why.contains(want), "{name}: {why}");
    }
}

#[test]
fn a_sparse_tensor_is_within_its_dimensions_and_memory() {
    let sparse = |dims: &[i64], each: bool, indices: &[i64]| {
        let count = if each {
            indices.len() / dims.len()
        } else {
            indices.len()
        };
        let places = TensorProto {
            int64_data: indices.to_vec(),
            ..empty(
                DType::I64,
                &[count as i64, dims.len() as i64][..1 + usize::from(each)],
            )
        };
        let sparse = SparseTensorProto {
            values: Some(raw(DType::F32, &[count as i64], 4 * count)),
            indices: Some(places),
            dims: dims.to_vec(),
        };
        let mut a = AttributeProto {
            name: Some("sparse_value".to_owned()),
            sparse_tensor: Some(Box::new(sparse.clone())),
            ..Default::default()
        };
        a.set_type(AttributeType::SparseTensor);
        [
            changed(|g| g.sparse_initializer.push(sparse)),
            changed(|g| {
                let mut n = node("Constant", &[], &["k"]);
                n.attribute.push(a);
                g.node.push(n);
            }),
        ]
    };
    for (name, dims, each, indices) in [
        ("the last element", &[4, 5][..], false, &[0, 19][..]),
        ("the last of each axis", &[4, 5], true, &[0, 0, 3, 4]),
        ("no element", &[4, 5], false, &[]),
        ("no element of an empty one", &[4, 0], true, &[]),
        ("a tebibyte", &[1 << 38], false, &[1]),
    ] {
        for model in sparse(dims, each, indices) {
            assert_eq!(verdict(&model), Ok(()), "{name}");
        }
    }
    let outside = "outside of its dimensions [4, 5]";
    let large = "is too large for any memory";
    for (name, dims, each, indices, want) in [
        (
            "one past the end",
            &[4, 5][..],
            false,
            &[0, 20][..],
            outside,
        ),
        ("below zero", &[4, 5], false, &[-1], outside),
        ("a row too far", &[4, 5], true, &[4, 0], outside),
        ("a column too far", &[4, 5], true, &[0, 0, 0, 5], outside),
        ("a column below zero", &[4, 5], true, &[0, -1], outside),
        ("more than a tebibyte", &[(1 << 38) + 1], false, &[1], large),
        (
            "more than 64 bits",
            &[1 << 40, 1 << 40],
            true,
            &[0, 0],
            large,
        ),
        ("a wrapped count", &[1 << 62, 8], false, &[0], large),
        ("something of nothing", &[0, 5], false, &[0], "[0, 5]"),
    ] {
        for model in sparse(dims, each, indices) {
            let why = verdict(&model).unwrap_err();
            assert!(why.contains(want), "{name}: {why}");
        }
    }
}

#[test]
fn indices_of_another_type_are_refused() {
    let model = changed(|g| {
        g.sparse_initializer.push(SparseTensorProto {
            values: Some(raw(DType::F32, &[2], 8)),
            indices: Some(raw(DType::I32, &[2], 8)),
            dims: vec![4, 5],
        });
    });
    let why = verdict(&model).unwrap_err();
    assert_eq!(why, "t: the indices of the sparse tensor must be int64");
}
