//! Operators of which only dimensions are inferred.

use super::*;

fn dims(all: &[&[usize]]) -> Vec<Option<Vec<usize>>> {
    all.iter().map(|d| Some(d.to_vec())).collect()
}

#[test]
fn convolutions_and_pools_slide_over_space() {
    let conv = || op("Conv");
    let cases: [(Op, &[Dims], Dims); 8] = [
        (conv(), &[&[1, 3, 32, 32], &[8, 3, 3, 3]], &[1, 8, 30, 30]),
        (
            conv().ints("strides", &[2, 2]).ints("pads", &[1, 1, 1, 1]),
            &[&[1, 3, 32, 32], &[8, 3, 3, 3]],
            &[1, 8, 16, 16],
        ),
        (
            conv().int("group", 4),
            &[&[2, 4, 9], &[4, 1, 3]],
            &[2, 4, 7],
        ),
        (
            conv().text("auto_pad", "SAME_UPPER"),
            &[&[2, 4, 9], &[6, 4, 4]],
            &[2, 6, 9],
        ),
        (
            contrib("NhwcConv"),
            &[&[1, 32, 30, 3], &[8, 3, 5, 3]],
            &[1, 30, 26, 8],
        ),
        (
            op("ConvTranspose").ints("strides", &[2]),
            &[&[1, 3, 5], &[3, 4, 3]],
            &[1, 4, 11],
        ),
        (
            op("MaxPool").ints("kernel_shape", &[2]),
            &[&[1, 3, 5]],
            &[1, 3, 4],
        ),
        (op("GlobalAveragePool"), &[&[1, 3, 5, 6]], &[1, 3, 1, 1]),
    ];
    for (op, inputs, want) in cases {
        assert_eq!(op.dims(inputs), dims(&[want]), "{}", op.node.op());
    }
    let refused = [
        (
            conv(),
            vec![content(&[1, 3, 9]), content(&[8, 4, 3])],
            Why::Shapes,
        ),
        (
            conv(),
            vec![content(&[1, 3, 2]), content(&[8, 3, 3])],
            Why::Dimension,
        ),
        (conv(), vec![content(&[3, 2]), content(&[8, 3])], Why::Rank),
        (
            conv().ints("strides", &[0]),
            vec![content(&[1, 3, 9]), content(&[8, 3, 3])],
            Why::Attribute("kernel_shape"),
        ),
        (
            op("MaxPool"),
            vec![content(&[1, 3, 9])],
            Why::Attribute("kernel_shape"),
        ),
    ];
    for (op, inputs, why) in refused {
        assert_eq!(op.why(&inputs), Some(why), "{}", op.node.op());
    }
}

#[test]
fn resizing_known_elements_takes_the_nearest() {
    let x = floats(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let run = |o: Op, factor: f64| {
        o.numbers(&[x.clone(), left_out(), floats(&[2], &[1.0, factor])])
            .1
    };
    assert_eq!(run(op("Resize"), 0.5), [1.0, 3.0]);
    assert_eq!(
        run(op("Resize"), 2.0),
        [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
    );
    let corners = op("Resize").text("coordinate_transformation_mode", "align_corners");
    assert_eq!(run(corners, 0.5), [1.0, 4.0]);
    let cubic = op("Resize").text("mode", "cubic");
    assert_eq!(run(cubic, 0.5), [1.40625, 3.59375]);
}

#[test]
fn resizing_follows_scales_or_sizes() {
    let x = content(&[1, 2, 4, 5]);
    let run = |o: Op, inputs: &[Value]| o.run(inputs).map(|v| v.dims).map_err(|m| m.why);
    let scales = floats(&[4], &[1.0, 1.0, 2.0, 1.5]);
    let later = [x.clone(), left_out(), scales.clone()];
    assert_eq!(run(op("Resize"), &later), Ok(Some(vec![1, 2, 8, 7])));
    let early = [x.clone(), scales];
    assert_eq!(
        run(op("Resize").opset(10), &early),
        Ok(Some(vec![1, 2, 8, 7]))
    );
    let sizes = [
        x.clone(),
        left_out(),
        floats(&[0], &[]),
        list(&[1, 2, 7, 9]),
    ];
    assert_eq!(run(op("Resize"), &sizes), Ok(Some(vec![1, 2, 7, 9])));
    let few = [x.clone(), left_out(), floats(&[1], &[2.0])];
    assert_eq!(run(op("Resize"), &few), Err(Why::Parameter("scales")));
    let bad = [x, left_out(), floats(&[4], &[1.0, 1.0, f64::NAN, 1.0])];
    assert_eq!(run(op("Resize"), &bad), Err(Why::Dimension));
}

#[test]
fn fused_attention_infers_outputs_and_caches() {
    let cases: [(Op, &[Dims], &[Dims]); 4] = [
        (
            op("Attention").outputs(1),
            &[&[2, 4, 3, 8], &[2, 2, 5, 8], &[2, 2, 5, 6]],
            &[&[2, 4, 3, 6]],
        ),
        (
            op("Attention")
                .int("q_num_heads", 4)
                .int("kv_num_heads", 2)
                .outputs(4),
            &[
                &[2, 3, 32],
                &[2, 5, 16],
                &[2, 5, 16],
                &[3, 9],
                &[2, 2, 4, 8],
                &[2, 2, 4, 8],
            ],
            &[&[2, 3, 32], &[2, 2, 9, 8], &[2, 2, 9, 8], &[2, 4, 3, 9]],
        ),
        (
            contrib("Attention").int("num_heads", 2).outputs(2),
            &[&[2, 3, 8], &[8, 24]],
            &[&[2, 3, 8], &[2, 2, 2, 3, 4]],
        ),
        (
            contrib("MultiHeadAttention").int("num_heads", 2).outputs(3),
            &[&[2, 3, 8], &[2, 5, 8], &[2, 5, 6]],
            &[&[2, 3, 6], &[2, 2, 5, 4], &[2, 2, 5, 3]],
        ),
    ];
    for (op, inputs, want) in cases {
        assert_eq!(op.dims(inputs), dims(want), "{}", op.node.op());
    }
    let grouped = contrib("GroupQueryAttention")
        .int("num_heads", 4)
        .int("kv_num_heads", 2);
    let past = content(&[2, 2, 5, 8]);
    let inputs = [
        content(&[2, 1, 64]),
        left_out(),
        left_out(),
        past.clone(),
        past,
        Value::opaque(DType::I32, [2]),
        list(&[6]),
    ];
    let present = |op: Op, inputs: &[Value]| -> Vec<_> {
        let out = op.outputs(3).all(inputs).unwrap();
        out.into_iter().map(|v| v.dims).collect()
    };
    let want = dims(&[&[2, 1, 32], &[2, 2, 6, 8], &[2, 2, 6, 8]]);
    assert_eq!(present(grouped.clone(), &inputs), want);
    // A cache of a window keeps its size.
    let same = dims(&[&[2, 1, 32], &[2, 2, 5, 8], &[2, 2, 5, 8]]);
    assert_eq!(
        present(grouped.int("sliding_window_cache", 1), &inputs),
        same
    );
    // The pattern of blocks is before the lengths.
    let sparse = contrib("SparseAttention")
        .int("num_heads", 4)
        .int("kv_num_heads", 2);
    let [q, k, v, key, value, lengths, total] = inputs;
    let blocks = [content(&[1, 3]), content(&[1, 4])];
    let all = [
        vec![q, k, v, key, value],
        blocks.to_vec(),
        vec![total, lengths],
    ]
    .concat();
    assert_eq!(present(sparse, &all), want);

    let heads = contrib("MultiHeadAttention").int("num_heads", 3);
    assert_eq!(heads.why(&[content(&[2, 3, 8])]), Some(Why::Shapes));
    let none = contrib("MultiHeadAttention");
    assert_eq!(
        none.why(&[content(&[2, 3, 8])]),
        Some(Why::Attribute("num_heads"))
    );
    let flat = op("Attention");
    let three = [
        content(&[2, 3, 8]),
        content(&[2, 3, 8]),
        content(&[2, 3, 8]),
    ];
    assert_eq!(flat.why(&three), Some(Why::Rank));
}

#[test]
fn fused_layers_infer_their_dimensions() {
    let embed = contrib("EmbedLayerNormalization").outputs(3);
    let inputs: [&[usize]; 5] = [&[2, 3], &[2, 3], &[99, 8], &[64, 8], &[2, 8]];
    assert_eq!(embed.dims(&inputs), dims(&[&[2, 3, 8], &[2], &[2, 3, 8]]));
    let bits = contrib("MatMulNBits").int("K", 8).int("N", 5);
    assert_eq!(bits.dims(&[&[2, 3, 8], &[5, 1, 16]]), dims(&[&[2, 3, 5]]));
    assert_eq!(bits.why(&[content(&[2, 3, 9])]), Some(Why::Shapes));
    for experts in ["MoE", "QMoE"] {
        assert_eq!(contrib(experts).dims(&[&[6, 8], &[6, 4]]), dims(&[&[6, 8]]));
    }
    let gemm = contrib("FusedGemm").text("activation", "Relu");
    assert_eq!(gemm.dims(&[&[6, 8], &[8, 5], &[5]]), dims(&[&[6, 5]]));
    let known = floats(&[1, 1], &[-2.0]);
    assert!(gemm.run(&[known.clone(), known]).unwrap().data.is_none());
    let table = content(&[32, 4]);
    let bias = contrib("RelativePositionBias");
    let out = bias
        .run(&[table, ints(&[], &[3]), ints(&[1], &[5])])
        .unwrap();
    assert_eq!(out.dims, Some(vec![1, 4, 3, 5]));
    let lstm = op("LSTM").int("hidden_size", 4).outputs(3);
    let want = dims(&[&[5, 1, 2, 4], &[1, 2, 4], &[1, 2, 4]]);
    assert_eq!(lstm.dims(&[&[5, 2, 3], &[1, 16, 3], &[1, 16, 4]]), want);
    let lstm = contrib("DynamicQuantizeLSTM").outputs(3);
    assert_eq!(lstm.dims(&[&[5, 2, 3], &[1, 3, 16], &[1, 4, 16]]), want);
    let quantized = op("DynamicQuantizeLinear").outputs(3);
    assert_eq!(quantized.dims(&[&[3, 4]]), dims(&[&[3, 4], &[], &[]]));
}

#[test]
fn rows_of_packed_numbers_infer_their_dimensions() {
    let typed = |dtype, dims: &[usize]| Value::shaped(Some(dtype), Some(dims.to_vec()));
    let scales = || typed(DType::F16, &[10, 1]);
    let rows = |op: &Op, table: DType, dims: &[usize]| {
        op.run(&[typed(table, dims), content(&[2, 3]), scales()])
            .unwrap()
    };
    let gather = contrib("GatherBlockQuantized");
    for (op, table, width) in [
        (gather.clone(), DType::U8, 16),
        (gather.clone().int("bits", 4), DType::U8, 16),
        (gather.clone().int("bits", 8), DType::U8, 8),
        (gather.clone(), DType::U4, 8),
    ] {
        let found = rows(&op, table, &[10, 8]);
        assert_eq!(found.dims, Some(vec![2, 3, width]), "{table}");
        assert_eq!(found.dtype, Some(DType::F16));
    }
    let columns = rows(&gather.clone().int("gather_axis", 1), DType::I4, &[8, 10]);
    assert_eq!(columns.dims, Some(vec![8, 2, 3]));
    let table = [typed(DType::U8, &[10, 8]), content(&[2, 3]), scales()];
    assert_eq!(
        gather.clone().int("bits", 3).why(&table),
        Some(Why::Attribute("bits"))
    );
    assert_eq!(gather.why(&table[..2]), Some(Why::NoInput(2)));
}

#[test]
fn images_with_channels_in_blocks_infer_their_dimensions() {
    let blocked = |op: &str| of("com.microsoft.nchwc", op);
    let conv = blocked("Conv").ints("strides", &[2, 2]);
    assert_eq!(
        conv.dims(&[&[2, 3, 8, 8], &[16, 3, 2, 2]]),
        dims(&[&[2, 16, 4, 4]])
    );
    // Weights are in another order, so that their numbers are not read.
    let known = [floats(&[1, 1, 1, 1], &[2.0]), floats(&[1, 1, 1, 1], &[3.0])];
    assert!(blocked("Conv").run(&known).unwrap().data.is_none());
    let x: &[&[usize]] = &[&[2, 16, 4, 5]];
    let back = blocked("ReorderOutput").int("channels", 12);
    assert_eq!(back.dims(x), dims(&[&[2, 12, 4, 5]]));
    assert_eq!(
        back.int("channels_last", 1).dims(x),
        dims(&[&[2, 4, 5, 12]])
    );
    let why = blocked("ReorderOutput").why(&[content(&[2, 16, 4, 5])]);
    assert_eq!(why, Some(Why::Attribute("channels")));
    let larger = blocked("Upsample").ints("scales", &[1, 1, 2, 3]);
    assert_eq!(larger.dims(x), dims(&[&[2, 16, 8, 15]]));
    assert_eq!(blocked("ReorderInput").dims(x), dims(x));
    let last = blocked("ReorderInput").int("channels_last", 1);
    assert_eq!(last.dims(x), dims(&[&[2, 5, 16, 4]]));
}

#[test]
fn resizing_to_the_same_size_keeps_the_numbers() {
    let x = floats(&[1, 1, 3], &[1.0, 2.0, 3.0]);
    let run = |n: i64| {
        let inputs = [x.clone(), left_out(), left_out(), list(&[1, 1, n])];
        op("Resize").text("mode", "linear").run(&inputs).unwrap()
    };
    assert_eq!(run(3).to_f64(), x.to_f64());
    let between: Vec<f64> = run(4).to_f64().unwrap().iter().copied().collect();
    assert_eq!(between, [1.0, 1.625, 2.375, 3.0]);
}

#[test]
fn fused_biases_pick_rows_by_bucket() {
    // With 8 buckets and a maximum of 20 in each direction: 0, 1, 2 up to 6, 3 from 7.
    let table = floats(&[8, 1], &[0., 1., 2., 3., 4., 5., 6., 7.]);
    let bias = |both: i64| {
        let op = contrib("RelativePositionBias").int("max_distance", 20);
        let lengths = [ints(&[], &[8]), ints(&[], &[8])];
        let inputs = [table.clone(), lengths[0].clone(), lengths[1].clone()];
        op.int("is_bidirectional", both).numbers(&inputs).1
    };
    let both = bias(1);
    assert_eq!(both[..8], [0., 5., 6., 6., 6., 6., 6., 7.], "later keys");
    let back: Vec<f64> = both.chunks(8).map(|row| row[0]).collect();
    assert_eq!(back, [0., 1., 2., 2., 2., 2., 2., 3.], "earlier keys");
    let causal = bias(0);
    assert_eq!(causal[..8], [0.; 8]);
    let back: Vec<f64> = causal.chunks(8).map(|row| row[0]).collect();
    assert_eq!(back, [0., 1., 2., 3., 4., 4., 5., 5.]);
}

#[test]
fn attention_on_pages_gives_its_caches_back() {
    let paged = contrib("PagedAttention")
        .int("num_heads", 4)
        .int("kv_num_heads", 2);
    let pages: &[usize] = &[9, 4, 2, 8];
    let cache = || content(pages);
    for (query, keys) in [(64, left_out()), (32, content(&[7, 16]))] {
        let inputs = [content(&[7, query]), keys, left_out(), cache(), cache()];
        let out = paged.clone().outputs(3).all(&inputs).unwrap();
        let got: Vec<_> = out.into_iter().map(|v| v.dims).collect();
        assert_eq!(got, dims(&[&[7, 32], pages, pages]));
    }
    assert!(paged.run(&[content(&[1, 7, 64])]).is_err());
}
