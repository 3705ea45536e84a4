//! Whether a configuration can be that of the layers of a graph, before its numbers are followed.

use std::collections::BTreeSet;

use crate::attention::Site;
use crate::detect::Found;
use crate::request::hf_config::HfConfig;

/// In what a config contradicts the layers of a graph that rotates; `None` where it does not, and where that is
/// not certain.
pub(super) fn disagreement(config: &HfConfig, found: &Found) -> Option<String> {
    if let Some(key) = config.alibi() {
        let why = format!(
            "{key} of the config is ALiBi, and the graph rotates; give the config of this model, or `to` \
             alibi without a config"
        );
        return Some(why);
    }
    let rotate = || found.rotary.iter().map(|r| &found.attention[r.site]);
    let graph: BTreeSet<usize> = rotate().filter_map(|site| site.heads).collect();
    if let Some((key, said)) = config.heads()
        && let Some(first) = graph.first().filter(|_| !graph.contains(&said))
    {
        return Some(differs(key, said, &format!("{first} heads")));
    }
    let keys: Option<BTreeSet<usize>> = rotate().map(|site| site.kv_heads).collect();
    if let (Some((key, said)), Some(graph)) = (config.kv_heads(), keys)
        && let Some(first) = graph.first().filter(|_| !graph.contains(&said))
    {
        let heads = if *first == 1 { "head" } else { "heads" };
        return Some(differs(key, said, &format!("{first} {heads} of keys")));
    }
    // Of two stacks, the config may count either.
    if found
        .attention
        .iter()
        .any(|site| site.place.stack.is_some())
    {
        return None;
    }
    let said = config.layers().ok().flatten()?;
    let rotating = layers(rotate());
    // Layers that do not rotate may be those of another model beside this one.
    let all = layers(found.attention.iter().filter(|site| !site.cross));
    // Cross-attention may be in layers of its own.
    let crossed = found.attention.iter().filter(|site| site.cross).count();
    let most = all + crossed;
    let fits = |said: usize| (rotating..=most).contains(&said);
    let is_said = fits(said) || config.attending().is_some_and(fits);
    (!is_said).then(|| {
        let layers = if all == 1 { "layer" } else { "layers" };
        let place = format!("{all} {layers} of attention");
        differs("the number of layers", said, &place)
    })
}

fn differs(what: &str, said: usize, graph: &str) -> String {
    format!(
        "{what} of the config is {said}, and the graph has {graph}; give the config of this model, or remove \
         that key where the graph is a part of the model"
    )
}

/// How many layers these sites are of.
fn layers<'a>(sites: impl Iterator<Item = &'a Site>) -> usize {
    sites
        .map(|site| site.place.layer)
        .collect::<BTreeSet<_>>()
        .len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::prove::testing::fixture;
    use crate::request::{Config, Request};
    use crate::rewrite::plan;

    /// What a plan to follow a config says.
    fn said(name: &str, text: &str) -> Result<(), String> {
        let request = Request {
            hf_config: Some(Config::from_text("new.json", text)),
            ..Request::default()
        };
        let model = fixture(name);
        let planned = plan(&model, request, &[]).map(drop);
        planned.map_err(|why| why.to_string())
    }

    #[test]
    fn the_config_of_another_model_is_refused() {
        let of = |text| said("llama/torchscript", text);
        let cases = [
            (
                r#"{"rope_theta": 2e4, "num_hidden_layers": 12}"#,
                "number of layers of the config is 12",
            ),
            (
                r#"{"rope_theta": 2e4, "n_layer": 1}"#,
                "number of layers of the config is 1,",
            ),
            (
                r#"{"rope_theta": 2e4, "num_attention_heads": 8}"#,
                "num_attention_heads of the config is 8",
            ),
            (
                r#"{"rope_theta": 2e4, "num_attention_heads": 4, "num_key_value_heads": 1}"#,
                "num_key_value_heads of the config is 1",
            ),
            (r#"{"alibi": true}"#, "alibi of the config is ALiBi"),
            (r#"{"vocab_size": 8}"#, "no key of a model with rotations"),
            (
                r#"{"position_embedding_type": "alibi"}"#,
                "position_embedding_type of the config is ALiBi",
            ),
        ];
        for (text, want) in cases {
            let why = of(text).unwrap_err();
            assert!(
                why.starts_with("new.json: ") && why.contains(want),
                "{text}: {why}"
            );
        }
        for text in [
            r#"{"rope_theta": 2e4, "num_hidden_layers": 2, "num_attention_heads": 4}"#,
            r#"{"rope_theta": 2e4, "num_key_value_heads": 2}"#,
            r#"{"rope_theta": 2e4, "alibi": false, "position_embedding_type": "absolute"}"#,
            r#"{"rope_theta": 2e4, "num_hidden_layers": 4,
                "layer_types": ["conv", "full_attention", "linear_attention", "sliding_attention"]}"#,
        ] {
            assert_eq!(of(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn cross_attention_may_be_in_layers_that_a_config_counts() {
        let mut found = detect(&fixture("llama/torchscript"), &Options::default());
        let cross = Site {
            cross: true,
            ..found.attention[0].clone()
        };
        let of = |found: &Found, layers: usize| {
            let text = format!(r#"{{"num_hidden_layers": {layers}}}"#);
            disagreement(&HfConfig::parse(&text).unwrap(), found)
        };
        assert!(of(&found, 3).is_some(), "control");
        found.attention.push(cross);
        assert_eq!(of(&found, 2), None);
        assert_eq!(of(&found, 3), None);
        assert!(of(&found, 4).is_some());
    }

    #[test]
    fn a_share_is_of_the_heads_that_the_graph_has() {
        let of = |text| said("llama/torchscript", text);
        for text in [
            r#"{"partial_rotary_factor": 0.5, "rope_theta": 2e4}"#,
            r#"{"rotary_pct": 0.5, "rotary_emb_base": 2e4}"#,
            r#"{"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}"#,
        ] {
            let why = of(text).unwrap_err();
            assert!(
                why.contains("the graph rotates 16 features, the config 8"),
                "{text}: {why}"
            );
        }
        assert_eq!(
            of(r#"{"partial_rotary_factor": 1.0, "rope_theta": 2e4}"#),
            Ok(())
        );
    }

    #[test]
    fn a_config_for_a_model_without_rotations_is_refused_with_what_it_can_do() {
        let why = said("gpt2/dynamo", r#"{"n_positions": 128}"#).unwrap_err();
        assert!(why.contains("a config changes rotations alone"), "{why}");
        assert!(!why.contains("`to` rope"), "{why}");
    }
}
