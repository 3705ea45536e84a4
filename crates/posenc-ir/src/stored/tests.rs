use super::*;
use crate::proto::StringStringEntryProto;

/// A tensor of one axis.
fn tensor(dtype: DType, len: i64) -> TensorProto {
    TensorProto {
        name: Some("t".into()),
        dims: vec![len],
        data_type: Some(dtype.code()),
        ..Default::default()
    }
}

#[test]
fn typed_lists_of_every_type_are_the_raw_payload() {
    use DType::*;
    let int = |dtype, entries: &[i32], len| TensorProto {
        int32_data: entries.to_vec(),
        ..tensor(dtype, len)
    };
    let float = |dtype, entries: &[f32], len| TensorProto {
        float_data: entries.to_vec(),
        ..tensor(dtype, len)
    };
    let double = |dtype, entries: &[f64], len| TensorProto {
        double_data: entries.to_vec(),
        ..tensor(dtype, len)
    };
    let unsigned = |dtype, entries: &[u64], len| TensorProto {
        uint64_data: entries.to_vec(),
        ..tensor(dtype, len)
    };
    let long = TensorProto {
        int64_data: vec![1, -2],
        ..tensor(I64, 2)
    };
    let one = 1f32.to_le_bytes();
    let one_f64 = 1f64.to_le_bytes();
    // As the format's own Python package packs the same values.
    let cases: [(TensorProto, Vec<u8>); 28] = [
        (float(F32, &[1.0, 0.0], 2), [one, [0; 4]].concat()),
        (float(Complex64, &[1.0, 1.0], 1), [one, one].concat()),
        (double(F64, &[1.0], 1), one_f64.to_vec()),
        (
            double(Complex128, &[1.0, 0.0], 1),
            [one_f64, [0; 8]].concat(),
        ),
        (long, [1i64.to_le_bytes(), (-2i64).to_le_bytes()].concat()),
        (unsigned(U64, &[u64::MAX], 1), vec![0xff; 8]),
        (unsigned(U32, &[1, 2], 2), vec![1, 0, 0, 0, 2, 0, 0, 0]),
        (int(I32, &[-1], 1), vec![0xff; 4]),
        (int(I16, &[-2, 1], 2), vec![0xfe, 0xff, 1, 0]),
        (int(U16, &[0xfffe], 1), vec![0xfe, 0xff]),
        (int(I8, &[-1, 2], 2), vec![0xff, 2]),
        (int(U8, &[255, 2], 2), vec![0xff, 2]),
        (int(Bool, &[1, 0], 2), vec![1, 0]),
        (int(F16, &[15360, 16384], 2), vec![0, 0x3c, 0, 0x40]),
        (int(BF16, &[16256, 16384], 2), vec![0x80, 0x3f, 0, 0x40]),
        (int(F8E4M3FN, &[56, 64], 2), vec![0x38, 0x40]),
        (int(F8E4M3FNUZ, &[64, 72], 2), vec![0x40, 0x48]),
        (int(F8E5M2, &[60, 64], 2), vec![0x3c, 0x40]),
        (int(F8E5M2FNUZ, &[64, 68], 2), vec![0x40, 0x44]),
        (int(F8E8M0, &[127, 128], 2), vec![0x7f, 0x80]),
        (int(U4, &[1, 17, 2], 5), vec![0x01, 0x11, 0x02]),
        (int(I4, &[1, 17, 15], 5), vec![0x01, 0x11, 0x0f]),
        (int(F4E2M1, &[2, 34, 4], 5), vec![0x02, 0x22, 0x04]),
        (int(U2, &[113, 2], 5), vec![0x71, 0x02]),
        (int(I2, &[97, 3], 5), vec![0x61, 0x03]),
        (
            int(F6E2M3, &[8, 0, 8, 8, 16], 5),
            vec![0x08, 0x80, 0x20, 0x10],
        ),
        (
            int(F6E3M2, &[12, 0, 12, 12, 16], 5),
            vec![0x0c, 0xc0, 0x30, 0x10],
        ),
        (int(F32, &[], 0), vec![]),
    ];
    for (proto, want) in cases {
        let dtype = DType::from_code(proto.data_type()).unwrap();
        let stored = Stored::from_proto(&proto).unwrap();
        assert_eq!(stored.tensor().unwrap().bytes(), &want, "{dtype}");
        let mut more = proto.clone();
        more.dims = vec![64];
        let short = Stored::from_proto(&more).unwrap().tensor();
        assert!(short.is_err(), "{dtype} with more elements than values");
        let raw = TensorProto {
            raw_data: Some(want.clone().into()),
            ..tensor(dtype, proto.dims[0])
        };
        let stored = Stored::from_proto(&raw).unwrap();
        assert_eq!(stored.tensor().unwrap().bytes(), &want, "raw {dtype}");
    }
}

#[test]
fn external_entries_without_the_location_are_ignored() {
    let mut proto = TensorProto {
        raw_data: Some(vec![7].into()),
        external_data: vec![StringStringEntryProto {
            key: Some("location".into()),
            value: Some("w.bin".into()),
        }],
        ..tensor(DType::U8, 1)
    };
    let payload = |proto: &TensorProto| {
        let bytes = Bytes::from(proto.encode_to_vec());
        let (_, stored) = Stored::read(&bytes, 0..bytes.len()).unwrap();
        stored.payload
    };
    assert!(matches!(payload(&proto), Payload::Raw(_)));
    proto.data_location = Some(0);
    assert!(matches!(payload(&proto), Payload::Raw(_)));
    proto.data_location = Some(1);
    assert!(matches!(payload(&proto), Payload::External(_)));
}
