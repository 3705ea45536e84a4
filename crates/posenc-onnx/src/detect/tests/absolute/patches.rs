//! Tables of the patches of an image, and of the tokens before them.

use super::*;

/// Rows and columns of patches.
const GRID: usize = 4;

/// The table of an image of `GRID` × `GRID` patches; `join` puts a token before those.
fn table_of(join: impl Fn(&mut Sketch, &str, &str) -> String) -> Encoding {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["batch", "3", "8", "8"]);
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let strides = [("strides", A::Ints(&[2, 2]))];
    let patches = s.with("Conv", &[&pixels, &w], &strides);
    let patches = s.reshape(&patches, &[0, HIDDEN as i64, -1]);
    let patches = s.transpose(&patches, &[0, 2, 1]);
    let class = s.weights(&[1, 1, HIDDEN]);
    let x = join(&mut s, &class, &patches);
    let table = s.weights(&[1, GRID * GRID + 1, HIDDEN]);
    let x = s.op("Add", &[&x, &table]);
    let y = s.attends(&x, &x);
    let found = found(&s.model(18, &[&y]));
    let encodings = found.findings.into_iter().map(|f| f.encoding);
    let mut encodings: Vec<Encoding> = encodings.collect();
    encodings.dedup();
    let [only] = encodings.try_into().unwrap();
    only
}

#[test]
fn a_class_token_is_before_the_patches_however_it_was_joined() {
    let want = Encoding::Learned(Learned {
        max_positions: GRID * GRID + 1,
        table_rows: GRID * GRID + 1,
        dim: HIDDEN,
        offset: 0,
        prefix: 1,
        grid: Some([GRID, GRID]),
    });
    let joined = table_of(|s, class, patches| s.concat(&[class, patches], 1));
    assert_eq!(joined, want, "joined");
    for (op, number) in [("Add", 0.0), ("Div", 1.0), ("Mul", 0.5)] {
        assert_eq!(table_of_padded(op, number), want, "{op} {number}");
    }
}

/// The table where a class token and patches are padded and added, the patches after one more operation.
fn table_of_padded(op: &str, number: f64) -> Encoding {
    table_of(|s, class, patches| {
        let (before, after) = (s.ints(&[0, 1, 0, 0, 0, 0]), s.ints(&[0, 0, 0, 0, 16, 0]));
        let class = s.op("Pad", &[class, &after]);
        let patches = s.op("Pad", &[patches, &before]);
        let number = s.float(number);
        let patches = s.op(op, &[&patches, &number]);
        s.op("Add", &[&patches, &class])
    })
}
