//! What can be said and is not done yet.

use super::{Allowances, Antialias, Corners, Length, Parameters, Request};
use crate::kind::Form;

impl Request {
    /// The first flag that was given and that no rewrite heeds yet; it must not be passed over in
    /// silence.
    pub fn unserved(&self) -> Option<&'static str> {
        let Parameters {
            num_buckets,
            max_distance,
            bidirectional,
            slopes,
            image_size,
            corners,
            antialias,
            length,
            seed,
            ..
        } = &self.parameters;
        let Allowances {
            add_position_ids,
            allow_rescale: _,
            write_config,
            sort: _,
        } = self.allowances;
        let flags = [
            ("--params", self.params.is_some()),
            ("--stack", self.stack.is_some()),
            ("--form", self.form.is_some_and(|form| form != Form::Ops)),
            ("--num-buckets", num_buckets.is_some()),
            ("--max-distance", max_distance.is_some()),
            ("--bidirectional", bidirectional.is_some()),
            ("--slopes", slopes.is_some()),
            ("--image-size", image_size.is_some()),
            ("--align-corners", *corners == Corners::Aligned),
            ("--antialias", *antialias == Antialias::On),
            ("--dynamic", *length == Length::Dynamic),
            ("--seed", seed.is_some()),
            ("--add-position-ids", add_position_ids),
            ("--write-config", write_config),
        ];
        let said = flags.into_iter().find(|(_, said)| *said);
        said.map(|(flag, _)| flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::request::ScaleType;

    #[test]
    fn what_is_done_is_not_named() {
        let mut request = Request {
            to: Some(Kind::Rope),
            scale: Some(ScaleType::Yarn),
            form: Some(Form::Ops),
            hf_config: Some("config.json".into()),
            ..Request::default()
        };
        request.allowances.sort = true;
        assert_eq!(request.unserved(), None);
        assert_eq!(Request::default().unserved(), None);
    }

    #[test]
    fn what_is_not_done_is_named() {
        let mut request = Request::default();
        request.allowances.write_config = true;
        assert_eq!(request.unserved(), Some("--write-config"));
        request.parameters.slopes = Some(vec![0.5]);
        assert_eq!(request.unserved(), Some("--slopes"));
        request.form = Some(Form::Contrib);
        assert_eq!(request.unserved(), Some("--form"));
    }
}
