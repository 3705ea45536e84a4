//! Forms that a runtime would compute as something else.

use posenc_ir::Model;
use posenc_runtime::{Backend, Options, TractBackend};

use super::bytes;

/// tract would attend to all keys.
#[test]
fn tract_refuses_attention_with_a_window() {
    for (left, right, is_refused) in [(-1, -1, false), (2, 0, true), (-1, 0, true), (0, -1, true)] {
        let text = format!(
            "<ir_version: 11, opset_import: [\"\" : 25]> g (float[1, 2, 4, 8] x) => (float[1, 2, 4, 8] y) \
             {{ y = Attention <left_window_size = {left}, right_window_size = {right}> (x, x, x) }}"
        );
        let model = Model::parse(&text).unwrap().to_bytes().unwrap();
        match TractBackend::new().load(bytes(&model), &Options::default()) {
            Ok(_) => assert!(!is_refused, "{left} {right}"),
            Err(why) => assert!(
                is_refused && why.to_string().contains("an Attention with a window"),
                "{left} {right}: {why}"
            ),
        }
    }
}
