//! Checks of a request before any work: whether its options are supported and have an effect.

use super::rope::NO_LAW;
use super::{Antialias, Corners, Length, Request, ScaleType, Target};
use crate::error::{Refusal, RefusalKind};
use posenc_encodings::family::{Entry, Family};
use posenc_encodings::kind::{Form, Kind};
use posenc_encodings::laws::LawName;
use posenc_encodings::param::ParameterError;
use posenc_encodings::resize::Resizing;
use posenc_encodings::words::Word;

/// Checks that a family outside of the registry can be found and inserted.
///
/// # Errors
/// When it is no family of score biases, or its word is taken.
pub(crate) fn check_custom(family: &'static Family) -> Result<(), Refusal> {
    let word = family.word;
    if !matches!(family.entry, Entry::ScoreBias(_)) {
        let why =
            format!("the custom family {word} is not a score bias, which is not supported yet");
        return Err(Refusal::unsupported(why));
    }
    if Kind::ALL.iter().any(|kind| kind.name() == word) {
        return Err(Refusal::invalid(format!(
            "a family named {word} exists already"
        )));
    }
    Ok(())
}

/// The refusal of a parameter without effect; one that only a scaling has is mended by giving that.
fn without_effect(error: ParameterError) -> Refusal {
    match error {
        ParameterError::Ineffective { parameter, of } if of == NO_LAW => Refusal::new(
            RefusalKind::NoEffect(parameter),
            format!("`{parameter}` has no effect on {of}; add `scale`, or remove it"),
        ),
        other => other.into(),
    }
}

impl Request {
    /// Checks what needs no model: that options do not contradict each other, that the parameters of laws have
    /// an effect, and that those of the inserted family are in range.
    ///
    /// # Errors
    /// With the first option that is not supported, has no effect or is out of range.
    ///
    /// ```
    /// # use posenc_onnx::{Shaw, Swap, request::Request};
    /// let request = Request::from(Swap::to(Shaw { max_distance: Some(0) }));
    /// let refusal = request.check_supported().unwrap_err();
    /// assert_eq!(refusal.reason(), "`max-distance` of shaw cannot be 0");
    /// ```
    pub fn check_supported(&self) -> Result<(), Refusal> {
        if (self.target, self.form) == (Some(Target::Portable), Some(Form::Contrib)) {
            let why = "`form` contrib has operators that only ONNX Runtime has, which are not portable; leave out one of the two";
            return Err(Refusal::invalid(why));
        }
        let p = &self.parameters;
        let is_image = p.image_size.is_some() || p.length == Length::Dynamic;
        if p.antialias == Antialias::On && !is_image {
            let why = "`antialias` is for another image size; give `image-size` or `dynamic`";
            return Err(Refusal::missing("image-size", why));
        }
        self.check_scaled_kind()?;
        self.check_law().map_err(without_effect)?;
        self.check_family()
    }

    /// Refuses a scaling of a kind that is inserted without one.
    fn check_scaled_kind(&self) -> Result<(), Refusal> {
        let (Some(scale), Some(kind)) = (self.scale, self.to) else {
            return Ok(());
        };
        if kind == Kind::Rope {
            return Ok(());
        }
        let is_linear = scale == LawName::Linear.into();
        let why = match (scale.resizing(), kind) {
            (_, Kind::None) => {
                format!("`to` none leaves nothing for `scale` {scale}; remove one of them")
            }
            (None, _) => format!(
                "`scale` {scale} applies to RoPE only, and `to` {kind} inserts another encoding; remove one of them"
            ),
            (Some(_), Kind::Learned | Kind::Sinusoidal) => format!(
                "`to` {kind} inserts as many positions as `max-length` says; remove `scale`"
            ),
            (Some(_), Kind::Alibi | Kind::T5Bias) if is_linear => format!(
                "`to` {kind} and `scale` {scale} are two rewrites: insert {kind} first, and scale the result"
            ),
            (Some(_), _) => {
                format!("`scale` {scale} is not for {kind}, which `to` inserts; remove one of them")
            }
        };
        Err(Refusal::invalid(why))
    }

    /// Refuses values that the inserted family cannot have.
    fn check_family(&self) -> Result<(), Refusal> {
        let Some(kind) = self.to else { return Ok(()) };
        if let (Kind::Custom(_), Some(family)) = (kind, kind.family()) {
            check_custom(family)?;
        }
        for param in kind.family().map_or(&[][..], |family| family.params) {
            match self.parameters.family.get(param.name) {
                Some(value) if !param.values.contain(value) => {
                    let why = format!("`{}` of {kind} cannot be {value}", param.name);
                    return Err(Refusal::invalid(why));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The first parameter that is given and has no effect where this kind is inserted, or without a
    /// kind where rotations are rescaled.
    pub(crate) fn ineffective(&self, kind: Option<Kind>) -> Option<&'static str> {
        let p = &self.parameters;
        let family = kind.and_then(Kind::family);
        let takes = |name: &str| family.is_some_and(|family| family.takes(name));
        let tensors = family.map_or(&[][..], |family| family.tensors);
        let starts = family.is_some_and(|family| !family.starts[1].is_empty());
        let follows = family.is_some_and(|family| family.follows_positions());
        let is_swap = kind.is_some();
        let common = [
            ("theta", p.theta.is_some()),
            ("layout", p.layout.is_some()),
            ("rotary-dim", p.rotary_dim.is_some()),
        ];
        // Frequencies can change without a swap; which features rotate together cannot.
        let changes_frequencies = !self.keeps_frequencies();
        let is_taken = |name: &str| {
            if is_swap {
                takes(name)
            } else {
                self.to.is_some() || changes_frequencies || name == "theta"
            }
        };
        let common = common
            .iter()
            .filter(|(name, given)| *given && !is_taken(name));
        let own = p.family.names().filter(|name| !takes(name));
        let names = own.chain(common.map(|(name, _)| *name));
        let options = [
            ("params", self.params.is_some() && tensors.is_empty()),
            ("seed", p.seed.is_some() && !starts),
            (
                "add-position-ids",
                self.allowances.add_position_ids && !follows,
            ),
            ("align-corners", p.corners == Corners::Aligned),
        ];
        let options = options.iter().filter(|(_, is_ineffective)| *is_ineffective);
        let mut all = options.map(|(name, _)| *name).chain(names);
        if let Some(name) = all.next() {
            return Some(name);
        }
        let is_rescaled =
            kind == Some(Kind::Rope) && (self.scale.is_some() || self.hf_config.is_some());
        if is_swap && !is_rescaled {
            return self.only_of_scaling();
        }
        None
    }

    /// The first parameter that is given and has no effect where tables get other rows.
    pub(crate) fn ineffective_on_tables(&self) -> Option<&'static str> {
        let p = &self.parameters;
        let by = self.scale.and_then(ScaleType::resizing);
        let interpolates = matches!(by, Some(Resizing::Linear | Resizing::Cubic));
        let aligns = p.corners == Corners::Aligned;
        let options = [
            ("align-corners", aligns && !interpolates),
            ("factor", p.factor.is_some() && self.scale.is_none()),
        ];
        self.unused_by_tables().or_else(|| given(&options))
    }

    /// The first parameter that is given and has no effect on another size of images.
    pub(crate) fn ineffective_on_images(&self) -> Option<&'static str> {
        let p = &self.parameters;
        let options = [
            ("to", self.to.is_some()),
            ("layers", self.layers.is_some()),
            ("stack", self.stack.is_some()),
            ("hf-config", self.hf_config.is_some()),
            ("max-length", p.max_length.is_some()),
            ("factor", p.factor.is_some()),
        ];
        given(&options).or_else(|| self.unused_by_tables())
    }

    /// The first parameter that is given and that tables of a model have no use for.
    fn unused_by_tables(&self) -> Option<&'static str> {
        let p = &self.parameters;
        let options = [
            ("theta", p.theta.is_some()),
            ("layout", p.layout.is_some()),
            ("rotary-dim", p.rotary_dim.is_some()),
            ("original-length", p.original_length.is_some()),
            ("table-precision", p.table_precision.is_some()),
            ("params", self.params.is_some()),
            ("seed", p.seed.is_some()),
            ("add-position-ids", self.allowances.add_position_ids),
            ("form", self.form.is_some()),
        ];
        let own = p.family.names().chain(p.law.names());
        given(&options).or(own.into_iter().next())
    }

    /// The first parameter that is given and that only scaling uses.
    fn only_of_scaling(&self) -> Option<&'static str> {
        let p = &self.parameters;
        let options = [
            ("hf-config", self.hf_config.is_some()),
            ("factor", p.factor.is_some()),
            ("original-length", p.original_length.is_some()),
            ("table-precision", p.table_precision.is_some()),
        ];
        given(&options).or_else(|| p.law.names().next())
    }
}

/// The first of these options that is given.
fn given(options: &[(&'static str, bool)]) -> Option<&'static str> {
    let first = options.iter().find(|(_, given)| *given);
    first.map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posenc_encodings::families::alibi;
    use posenc_encodings::param::{Given, Value};

    #[test]
    fn operators_of_one_runtime_are_not_portable() {
        let check = |form, target| {
            let request = Request {
                form: Some(form),
                target: Some(target),
                ..Request::default()
            };
            request.check_supported().is_ok()
        };
        assert!(!check(Form::Contrib, Target::Portable));
        assert!(check(Form::Onnx, Target::Portable));
        assert!(check(Form::Contrib, Target::OrtCpu));
    }

    #[test]
    fn a_parameter_of_another_kind_is_named() {
        let mut request = Request::default();
        assert_eq!(request.ineffective(None), None);
        let slopes = Value::Numbers(vec![0.5]);
        request
            .parameters
            .family
            .set(&alibi::FAMILY.params[0], slopes);
        assert_eq!(request.ineffective(Some(Kind::Alibi)), None);
        for kind in [None, Some(Kind::Rope), Some(Kind::None), Some(Kind::T5Bias)] {
            assert_eq!(request.ineffective(kind), Some("slopes"));
        }
        request.parameters.family = Given::default();
        request.parameters.theta = Some(1e6);
        assert_eq!(request.ineffective(None), None);
        assert_eq!(request.ineffective(Some(Kind::Learned)), Some("theta"));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let check = |kind, name, value| {
            let mut request = Request {
                to: Some(kind),
                ..Request::default()
            };
            request.parameters.family = Given::from_iter([(name, value)]);
            request.check_supported().map_err(|why| why.to_string())
        };
        let (count, word) = (Value::Count, Value::Word);
        assert_eq!(check(Kind::T5Bias, "num-buckets", count(8)), Ok(()));
        assert_eq!(check(Kind::Kerple, "variant", word("power")), Ok(()));
        for (kind, name, value, want) in [
            (Kind::T5Bias, "num-buckets", count(0), "cannot be 0"),
            (Kind::Shaw, "max-distance", count(0), "cannot be 0"),
            (Kind::Shaw, "max-distance", word("far"), "cannot be far"),
            (Kind::Kerple, "variant", word("root"), "cannot be root"),
            (Kind::Alibi, "slopes", count(1), "cannot be 1"),
        ] {
            let why = check(kind, name, value).unwrap_err();
            assert!(why.contains(want), "{kind} {name}: {why}");
        }
    }

    #[test]
    fn a_scaling_beside_another_kind_is_refused_with_the_way_to_get_it() {
        let check = |kind, scale| {
            let mut request = Request {
                to: Some(kind),
                scale: Some(scale),
                ..Request::default()
            };
            request.parameters.factor = Some(2.0);
            request.check_supported().map_err(|why| why.to_string())
        };
        let [linear, yarn] = [LawName::Linear, LawName::Yarn].map(ScaleType::from);
        let cases = [
            (
                Kind::Alibi,
                linear,
                "insert alibi first, and scale the result",
            ),
            (
                Kind::T5Bias,
                linear,
                "insert t5-bias first, and scale the result",
            ),
            (Kind::Alibi, yarn, "`scale` yarn applies to RoPE only"),
            (
                Kind::Alibi,
                ScaleType::Tile,
                "`scale` tile is not for alibi",
            ),
            (
                Kind::Learned,
                linear,
                "as many positions as `max-length` says",
            ),
            (Kind::None, linear, "leaves nothing"),
        ];
        for (kind, scale, want) in cases {
            let why = check(kind, scale).unwrap_err();
            assert!(why.contains(want), "{kind} {scale}: {why}");
        }
        assert_eq!(check(Kind::Rope, linear), Ok(()));
    }

    #[test]
    fn what_only_scaling_uses_is_named() {
        let mut request = Request::default();
        request.parameters.factor = Some(4.0);
        assert_eq!(request.ineffective(None), None);
        for kind in [Kind::None, Kind::Alibi, Kind::Rope] {
            assert_eq!(request.ineffective(Some(kind)), Some("factor"));
        }
        request.scale = Some(LawName::Yarn.into());
        assert_eq!(request.ineffective(Some(Kind::Rope)), None);
        assert_eq!(request.ineffective(Some(Kind::Alibi)), Some("factor"));
    }
}
