//! Models that were changed after an earlier rewrite wrote them.

use posenc_ir::Model;

use crate::detect::Options;
use crate::detect::branches::{Branch, branches};
use crate::prove::recorded::{hold, hold_lost};
use crate::record::written;

/// What differs from the record of an earlier rewrite, where something does. `found` is what was read from the model as
/// it is, as far as it was.
pub(super) fn difference(model: &Model, found: Option<&[Branch]>) -> Option<String> {
    let differences = match written::read(model) {
        None => hold_lost(model).differences,
        Some(Err(why)) => vec![format!("posenc.written cannot be read: {why}")],
        Some(Ok(written)) => match found {
            Some(found) => hold(model, &written, found).differences,
            None => hold(model, &written, &branches(model, &Options::default())).differences,
        },
    };
    let first = differences.first()?;
    let more = match differences.len() - 1 {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    Some(format!(
        "the model was changed after an earlier rewrite: {first}{more}; `verify` shows what differs"
    ))
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Kind;
    use posenc_ir::Weights;

    use super::*;
    use crate::prove::testing::fixture;
    use crate::request::Request;
    use crate::rewrite::rewrite;

    fn to(kind: Kind) -> Request {
        Request {
            to: Some(kind),
            ..Request::default()
        }
    }

    /// The warnings of a second rewrite that speak of the first one.
    fn warnings(model: &Model) -> Vec<String> {
        let done = rewrite(&mut model.clone(), &to(Kind::Sinusoidal)).unwrap();
        let all = done.report.warnings.into_iter();
        all.filter(|why| why.contains("earlier rewrite")).collect()
    }

    #[test]
    fn a_model_that_was_changed_since_is_named_in_the_next_rewrite() {
        let mut model = fixture("mini/rope");
        assert_eq!(warnings(&model), [""; 0]);
        rewrite(&mut model, &to(Kind::Alibi)).unwrap();
        assert_eq!(warnings(&model), [""; 0]);
        let text = model.text(Weights::Full).to_string();
        let gate = text.replacen("approximate = \"none\"", "approximate = \"tanh\"", 1);
        let renamed = text.replace("\"posenc.written\"", "\"written\"");
        for (changed, why) in [
            (
                text.replacen("\"posenc.swap\"", "\"swap\"", 1),
                "posenc.swap",
            ),
            (renamed, "posenc.written"),
            (gate, "was changed after the rewrite"),
        ] {
            assert!(changed != text, "{why}");
            let found = match Model::parse(&changed) {
                Ok(model) => warnings(&model),
                Err(why) => panic!("{why}"),
            };
            assert!(
                matches!(&found[..], [one] if one.contains(why)),
                "{why}: {found:?}"
            );
        }
    }
}
