//! What can be said and is not done yet.

use super::{Allowances, Antialias, Corners, Length, Parameters, Request};
use crate::kind::Form;

impl Request {
    /// The first flag that was given and that no rewrite heeds yet; it must not be passed over in
    /// silence.
    pub fn unserved(&self) -> Option<&'static str> {
        let Parameters {
            image_size,
            corners,
            antialias,
            length,
            ..
        } = &self.parameters;
        let Allowances {
            add_position_ids: _,
            allow_rescale: _,
            write_config,
            sort: _,
        } = self.allowances;
        let flags = [
            ("--form", self.form.is_some_and(|form| form != Form::Ops)),
            ("--image-size", image_size.is_some()),
            ("--align-corners", *corners == Corners::Aligned),
            ("--antialias", *antialias == Antialias::On),
            ("--dynamic", *length == Length::Dynamic),
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
        request.parameters.length = crate::request::Length::Dynamic;
        assert_eq!(request.unserved(), Some("--dynamic"));
        request.form = Some(Form::Contrib);
        assert_eq!(request.unserved(), Some("--form"));
    }
}
