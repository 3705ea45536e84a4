//! The outputs of an encoder without an encoding do not depend on the order of the tokens.

use std::collections::BTreeMap;

use posenc_ir::{DType, Tensor};
use posenc_runtime::Session;
use posenc_tests::fixture::Fixture;

use super::{Wrong, family, rewritten};
use crate::logits::{TOLERANCE, distance, load, logits};
use crate::runtime::onnxruntime;

const LENGTH: usize = 17;

/// The new place of each token: 5 and the length have no common divisor.
fn moved(place: usize) -> usize {
    (5 * place + 3) % LENGTH
}

/// The distance between the logits of permuted tokens and the permuted logits.
fn disorder(session: &mut dyn Session) -> f64 {
    let ids: Vec<i64> = (0..LENGTH as i64).map(|i| 1 + 7 * i % 50).collect();
    let mut other = vec![0; LENGTH];
    for (place, id) in ids.iter().enumerate() {
        other[moved(place)] = *id;
    }
    let [before, after] = [ids, other].map(|ids| {
        let ids = Tensor::from_i64(&[1, LENGTH], &ids);
        let mask = Tensor::from_i64(&[1, LENGTH], &[1; LENGTH]);
        let types = Tensor::from_i64(&[1, LENGTH], &[0; LENGTH]);
        let feeds = [
            ("input_ids", ids),
            ("attention_mask", mask),
            ("token_type_ids", types),
        ];
        let feeds: BTreeMap<_, _> = feeds.map(|(n, t)| (n.to_owned(), t)).into();
        logits(session, &feeds).unwrap()
    });
    let row = before.bytes().len() / LENGTH;
    let mut want = vec![0; before.bytes().len()];
    for place in 0..LENGTH {
        let to = moved(place) * row;
        want[to..to + row].copy_from_slice(&before.bytes()[place * row..][..row]);
    }
    let want = Tensor::new(DType::F32, before.dims().to_vec(), want.into()).unwrap();
    distance(&after, &want).unwrap()
}

#[test]
fn without_an_encoding_permuted_tokens_give_permuted_logits() {
    let backend = onnxruntime();
    let mut bad = Wrong::default();
    let bert = Fixture::named("bert/dynamo");
    for source in family("mini-encoder").into_iter().chain([bert]) {
        let far = disorder(&mut *load(&backend, &source.model()));
        if source.exporter != "none" && far < 100.0 * TOLERANCE {
            bad.add(
                &source.name(),
                [format!("does not depend on the order before: {far}")],
            );
        }
        match rewritten(&source.model(), "--to none", None) {
            Ok(made) => {
                let far = disorder(&mut *load(&backend, &made.model()));
                let kept = (far > TOLERANCE).then(|| format!("still depends on the order: {far}"));
                bad.add(&source.name(), kept);
            }
            Err(why) => bad.add(&source.name(), [why]),
        }
    }
    bad.none();
}
