//! Comparisons of models with their mutations do not panic, and a model equals itself.

use posenc_ir::Model;
use posenc_ir::diff::Diff;

use super::mutate;
use super::random::Random;

/// Compares the model with itself and with a mutation that its bytes determine.
///
/// # Panics
/// When a model that passes the check differs from itself, or a comparison depends on the order of
/// the models.
pub fn diff(data: &[u8]) {
    let read = |bytes: Vec<u8>| Model::from_bytes(bytes).ok();
    let Some(a) = read(data.to_vec()).filter(|m| m.check().is_ok()) else {
        return;
    };
    let same = Diff::between(&a, &a).expect("a model that passes the check has an order");
    assert!(same.is_empty(), "the model differs from itself: {same:?}");
    let mut random = Random::new(data.len() as u64);
    let other = mutate::model(data, data.len() + 1024, &mut random);
    let Some(b) = read(other) else { return };
    let (Ok(there), Ok(back)) = (Diff::between(&a, &b), Diff::between(&b, &a)) else {
        return;
    };
    let _ = there.texts(&a, &b);
    if b.check().is_ok() {
        assert_eq!(there.is_empty(), back.is_empty(), "{there:?}\n{back:?}");
    }
}
