//! The base θ of a layer, where a config does not name it.

use posenc_encodings::inferred::Inferred;
use posenc_encodings::laws::Scaling;

use crate::error::Refusal;
use crate::request::hf_config::RopeRequest;

/// What a config says of a layer, with the `base` of the graph where no key names one: what is usual differs between
/// classes of models, which a config does not tell.
pub(super) fn with_base(
    mut wanted: RopeRequest,
    base: Option<f64>,
) -> Result<RopeRequest, Refusal> {
    if wanted.states_theta() {
        return Ok(wanted);
    }
    let theta = base.ok_or_else(|| {
        Refusal::unsupported(
            "the config names no base θ, and that of the graph's frequencies cannot be inferred; add \
             rope_theta to the config",
        )
    })?;
    wanted.theta = theta;
    wanted.inferred.retain(|value| value.name != "theta");
    let source = "the graph's frequencies";
    wanted.inferred.push(Inferred::new("theta", theta, source));
    Ok(wanted)
}

/// The base of a layer in the graph, and what a config says of the layer: the base that it names, and the scaling.
pub(super) type LayerBase = (Option<f64>, (Option<f64>, Scaling));

/// Refuses a config that says the same of all layers where the graph has several bases.
pub(super) fn check_bases(layers: &[LayerBase]) -> Result<(), String> {
    let Some((_, said)) = layers.first() else {
        return Ok(());
    };
    let changes = *said != (None, Scaling::None);
    let mut bases = layers.iter().filter_map(|(base, _)| *base);
    let first = bases.next().unwrap_or_default();
    let other = bases.find(|base| (base - first).abs() > 1e-3 * first.max(*base));
    match other {
        Some(other) if changes && layers.iter().all(|(_, own)| own == said) => Err(format!(
            "layers of the graph have the bases θ {first} and {other}, and the config says the same of all of them; \
             is it the config of this model? `layers` names those that it describes"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use posenc_encodings::laws::Linear;

    use super::*;
    use crate::request::hf_config::HfConfig;

    fn wanted(config: &str) -> RopeRequest {
        let config = HfConfig::parse(config).unwrap();
        config.rope_for(0).unwrap().unwrap()
    }

    #[test]
    fn a_base_that_no_key_names_is_that_of_the_graph() {
        let silent = r#"{"rope_scaling": {"type": "linear", "factor": 2.0}}"#;
        let done = with_base(wanted(silent), Some(1e6)).unwrap();
        assert_eq!(done.theta, 1e6);
        let said: Vec<_> = done.inferred.iter().filter(|v| v.name == "theta").collect();
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].source, "the graph's frequencies");
        let stated = wanted(r#"{"rope_theta": 5e5}"#);
        assert_eq!(with_base(stated.clone(), Some(1e6)).unwrap(), stated);
        assert_eq!(with_base(stated.clone(), None).unwrap(), stated);
        assert!(with_base(wanted(silent), None).is_err());
    }

    #[test]
    fn one_word_for_layers_of_several_bases_is_refused() {
        let linear = || Scaling::Linear(Linear::new(2.0).unwrap());
        let layers = |graph: [f64; 2], stated: [Option<f64>; 2], scaling: [Scaling; 2]| {
            let layer = |(base, said)| (Some(base), said);
            let said = stated.into_iter().zip(scaling);
            let all: Vec<LayerBase> = graph.into_iter().zip(said).map(layer).collect();
            check_bases(&all).is_ok()
        };
        let (none, both) = ([None; 2], [1e4, 1e6]);
        assert!(!layers(both, none, [linear(), linear()]));
        assert!(!layers(both, [Some(1e6); 2], [linear(), linear()]));
        assert!(!layers(
            both,
            [Some(1e6); 2],
            [Scaling::None, Scaling::None]
        ));
        assert!(
            layers(both, none, [Scaling::None, Scaling::None]),
            "nothing changes"
        );
        assert!(layers(both, none, [Scaling::None, linear()]));
        assert!(layers(both, [Some(1e4), Some(1e6)], [linear(), linear()]));
        assert!(
            layers([1e6, 1e6 * 1.0001], none, [linear(), linear()]),
            "one base"
        );
    }
}
