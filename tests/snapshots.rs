//! The changes of rewrites, as diffs of the graph's text.

use posenc_tests::binary;

/// The diff that a rewrite with these flags prints.
fn diff(fixture: &str, flags: &str) -> String {
    let model = format!("fixtures/{fixture}/model.onnx");
    let fixed = ["rewrite", &model, "--dry-run", "--diff"];
    let ran = binary::run(fixed.into_iter().chain(flags.split(' ')));
    assert_eq!(ran.code, 0, "{fixture} {flags}: {}", ran.stderr);
    let version = concat!("posenc-onnx ", env!("CARGO_PKG_VERSION"));
    ran.stdout.replace(version, "posenc-onnx [version]")
}

/// One snapshot for each row.
macro_rules! snapshots {
    ($($name:ident: $fixture:literal, $flags:literal;)*) => {$(
        #[test]
        fn $name() {
            insta::with_settings!({ prepend_module_to_snapshot => false, description => $flags }, {
                insta::assert_snapshot!(stringify!($name), diff($fixture, $flags));
            });
        }
    )*};
}

snapshots! {
    yarn_in_a_graph_with_constants: "llama/torchscript", "--to rope --scale yarn --factor 4";
    yarn_in_a_graph_with_initializers: "llama/dynamo", "--to rope --scale yarn --factor 4";
    yarn_in_native_operators: "llama/dynamo23", "--to rope --scale yarn --factor 4";
    yarn_in_folded_constants: "llama/dynamo-static", "--to rope --scale yarn --factor 4";
    yarn_in_a_table: "gptj/dynamo", "--to rope --scale yarn --factor 4";
    yarn_of_two_thetas: "gemma3-text/dynamo", "--to rope --scale yarn --factor 4";
    yarn_of_part_of_the_head: "gpt_neox/torchscript", "--to rope --scale yarn --factor 4";
    linear_changes_the_frequencies_alone: "llama/dynamo", "--to rope --scale linear --factor 4";
    dynamic_selects_at_run_time: "llama/dynamo", "--to rope --scale dynamic --factor 4";
    dynamic_with_a_cache: "llama/optimum", "--to rope --scale dynamic --factor 4";
}
