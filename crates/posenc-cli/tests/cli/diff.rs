//! `diff`.

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
    run(["diff", &a, "no such file"]).failed(3, "a file that is not there");
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
