//! What can be said and is not done: not yet, or not by this rewrite.

use super::{Allowances, Antialias, Corners, Length, Parameters, Request, Target};
use crate::error::{Refusal, RefusalKind};
use posenc_encodings::kind::{Form, Kind};

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
            ("--target", self.target != Target::Portable),
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

impl Request {
    /// Checks what needs no model: that every option is supported, and that the parameters of laws
    /// have an effect.
    ///
    /// # Errors
    /// With the first option that is not supported or has no effect.
    pub fn check_supported(&self) -> Result<(), Refusal> {
        if let Some(flag) = self.unserved() {
            let name = flag.trim_start_matches("--");
            let why = format!("`{name}` is not supported yet; remove it");
            return Err(Refusal::new(RefusalKind::UnsupportedOption(name), why));
        }
        Ok(self.check_law()?)
    }

    /// The first flag that was given and that putting in this kind does not heed; without a kind,
    /// stretching what is there.
    pub(crate) fn idle(&self, kind: Option<Kind>) -> Option<&'static str> {
        use Kind::TransformerXl as Xl;
        use Kind::{Alibi, Conv, Learned, RelativeBias, Rope, Shaw, Sinusoidal, T5Bias};
        let p = &self.parameters;
        let anew = kind.is_some();
        let tables: &[Kind] = &[Learned, Conv, T5Bias, RelativeBias, Shaw, Xl];
        let given: &[Kind] = &[Learned, Conv, T5Bias, RelativeBias, Shaw, Xl, Alibi];
        let flags: [(&str, bool, &[Kind]); 10] = [
            ("--params", self.params.is_some(), given),
            ("--seed", p.seed.is_some(), tables),
            ("--num-buckets", p.num_buckets.is_some(), &[T5Bias]),
            (
                "--max-distance",
                p.max_distance.is_some(),
                &[T5Bias, RelativeBias, Shaw],
            ),
            (
                "--bidirectional",
                p.bidirectional.is_some(),
                &[T5Bias, Alibi],
            ),
            ("--slopes", p.slopes.is_some(), &[Alibi]),
            (
                "--add-position-ids",
                self.allowances.add_position_ids,
                &[Learned, Sinusoidal, Rope],
            ),
            ("--theta", p.theta.is_some() && anew, &[Rope, Sinusoidal]),
            ("--layout", p.layout.is_some() && anew, &[Rope, Sinusoidal]),
            ("--rotary-dim", p.rotary_dim.is_some() && anew, &[Rope]),
        ];
        let idle = |(_, said, kinds): &(&str, bool, &[Kind])| {
            *said && kind.is_none_or(|kind| !kinds.contains(&kind))
        };
        let idle = flags.into_iter().find(idle).map(|(flag, ..)| flag);
        let stretched = kind == Some(Rope) && (self.scale.is_some() || self.hf_config.is_some());
        match anew && !stretched {
            true => idle.or_else(|| self.stretching()),
            false => idle,
        }
    }

    /// The first flag that was given and that only stretching heeds.
    fn stretching(&self) -> Option<&'static str> {
        let p = &self.parameters;
        let flags = [
            ("--hf-config", self.hf_config.is_some()),
            ("--factor", p.factor.is_some()),
            ("--original-length", p.original_length.is_some()),
            ("--table-precision", p.table_precision.is_some()),
        ];
        let given = flags.into_iter().find(|(_, given)| *given);
        given.map(|(flag, _)| flag).or_else(|| p.law.names().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Config;
    use posenc_encodings::laws::LawName;

    #[test]
    fn what_is_done_is_not_named() {
        let mut request = Request {
            to: Some(Kind::Rope),
            scale: Some(LawName::Yarn.into()),
            form: Some(Form::Ops),
            hf_config: Some(Config::from_text("config.json", "{}")),
            ..Request::default()
        };
        request.allowances.sort = true;
        assert_eq!(request.unserved(), None);
        assert_eq!(Request::default().unserved(), None);
    }

    #[test]
    fn a_flag_of_another_kind_is_named() {
        let mut request = Request::default();
        assert_eq!(request.idle(None), None);
        request.parameters.slopes = Some(vec![0.5]);
        assert_eq!(request.idle(Some(Kind::Alibi)), None);
        for kind in [None, Some(Kind::Rope), Some(Kind::None), Some(Kind::T5Bias)] {
            assert_eq!(request.idle(kind), Some("--slopes"));
        }
        request.parameters.slopes = None;
        request.parameters.theta = Some(1e6);
        assert_eq!(request.idle(None), None);
        assert_eq!(request.idle(Some(Kind::Learned)), Some("--theta"));
    }

    #[test]
    fn what_only_stretching_heeds_is_named() {
        let mut request = Request::default();
        request.parameters.factor = Some(4.0);
        assert_eq!(request.idle(None), None);
        for kind in [Kind::None, Kind::Alibi, Kind::Rope] {
            assert_eq!(request.idle(Some(kind)), Some("--factor"));
        }
        request.scale = Some(LawName::Yarn.into());
        assert_eq!(request.idle(Some(Kind::Rope)), None);
        assert_eq!(request.idle(Some(Kind::Alibi)), Some("--factor"));
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
