//! `diff`.

use posenc_ir::proto::StringStringEntryProto;

use crate::run::{Folder, addition, bytes, run};

#[test]
fn equal_models_print_nothing_and_differences_exit_1() {
    let folder = Folder::new();
    let a = folder.file("a.onnx", bytes(&addition()));
    let mut model = addition();
    let node = &mut model.graph.as_mut().unwrap().node[0];
    node.name = Some("renamed".into());
    let renamed = folder.file("renamed.onnx", bytes(&model));
    let ran = run(["diff", &a, &renamed]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));

    let graph = model.graph.as_mut().unwrap();
    graph.node[0].input.swap(0, 1);
    let b = folder.file("b.onnx", bytes(&model));
    let ran = run(["diff", &a, &b]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.out.contains("-  y = Add(x, w)\n+  y = Add(w, x)\n"),
        "{}",
        ran.out
    );
    assert_eq!(ran.err, "note: nodes: 1 changed\n");
    run(["diff", &a, "no such file"]).failed(3, "a missing file");
}

#[test]
fn differences_are_json_too() {
    let folder = Folder::new();
    let a = folder.file("a.onnx", bytes(&addition()));
    let mut model = addition();
    let weight = &mut model.graph.as_mut().unwrap().initializer[0];
    weight.raw_data = Some(vec![1u8; 64].into());
    let b = folder.file("b.onnx", bytes(&model));
    let json = |other: &str| {
        let ran = run(["diff", &a, other, "--json"]);
        let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        (ran.code, value)
    };
    let (code, same) = json(&a);
    assert_eq!(
        (code, &same["equal"], &same["schema"]),
        (0, &true.into(), &1.into())
    );
    let (code, value) = json(&b);
    assert_eq!((code, &value["equal"]), (1, &false.into()));
    let changed = &value["initializers"]["changed"][0];
    assert_eq!(changed["what"], serde_json::json!(["value"]));
    assert_eq!(
        (&changed["a"]["place"], &changed["b"]["place"]),
        (&"w".into(), &"w".into())
    );
    assert_eq!(value["nodes"], same["nodes"]);
}

#[test]
fn models_that_are_not_valid_are_not_compared() {
    let folder = Folder::new();
    let good = folder.file("good.onnx", bytes(&addition()));
    let mut model = addition();
    let outputs = &mut model.graph.as_mut().unwrap().output;
    outputs.push(outputs[0].clone());
    let twice = folder.file("twice.onnx", bytes(&model));
    for pair in [[&twice, &twice], [&twice, &good], [&good, &twice]] {
        run(["diff", pair[0], pair[1]]).failed(3, "an output twice");
    }
    assert_eq!(run(["diff", &good, &good]).code, 0);
}

#[test]
fn what_is_unusual_about_a_model_is_said() {
    let folder = Folder::new();
    let mut model = addition();
    model.opset_import[0].version = Some(99);
    let new = folder.file("new.onnx", bytes(&model));
    let ran = run(["diff", &new, &new]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    let warnings: Vec<&str> = ran.err.lines().collect();
    assert_eq!(warnings.len(), 2, "{}", ran.err);
    let of_it = format!("warning: {new}: ");
    assert!(
        warnings.iter().all(|w| w.starts_with(&of_it)),
        "{}",
        ran.err
    );
}

#[test]
fn data_that_is_not_there_is_said_to_be_compared_by_its_place() {
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    };
    let mut model = addition();
    let weight = &mut model.graph.as_mut().unwrap().initializer[0];
    weight.dims = vec![512];
    weight.raw_data = None;
    weight.data_location = Some(1);
    weight.external_data = vec![entry("location", "w.bin"), entry("length", "2048")];
    let [there, gone, other] = [(); 3].map(|()| Folder::new());
    let place = |folder: &Folder| folder.file("m.onnx", bytes(&model));
    let paths = [&there, &gone, &other].map(place);
    there.file("w.bin", [1; 2048]);
    other.file("w.bin", [2; 2048]);
    let warning = "external data not found: w.bin (compared by location only)";
    let ran = run(["diff", &paths[0], &paths[1]]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert_eq!(ran.err, format!("warning: {}: {warning}\n", paths[1]));
    let ran = run(["diff", &paths[0], &paths[2]]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err, "note: initializers: 1 changed\n");
}

#[test]
fn another_order_of_outputs_is_a_difference() {
    let folder = Folder::new();
    let mut model = addition();
    let graph = model.graph.as_mut().unwrap();
    let mut node = graph.node[0].clone();
    node.output = vec!["z".into()];
    node.op_type = Some("Sub".into());
    graph.node.push(node);
    let mut output = graph.output[0].clone();
    output.name = Some("z".into());
    graph.output.push(output);
    let a = folder.file("a.onnx", bytes(&model));
    model.graph.as_mut().unwrap().output.swap(0, 1);
    let b = folder.file("b.onnx", bytes(&model));
    let ran = run(["diff", &a, &b]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "note: order: 1 changed\n")
    );
    let changed: Vec<&str> = ran.out.lines().skip(2).collect();
    let of = |sign: char| changed.iter().filter(|l| l.starts_with(sign)).count();
    assert_eq!((of('-'), of('+')), (1, 1), "{}", ran.out);
    let ran = run(["diff", &a, &b, "--json"]);
    let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let want = serde_json::json!([{"key": "outputs", "a": "y, z", "b": "z, y"}]);
    assert_eq!((ran.code, &value["order"]), (1, &want));
    assert_eq!(run(["diff", &b, &b]).code, 0);
}
