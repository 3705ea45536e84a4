//! The report of an inspection as text.

use posenc_encodings::kind::{Form, Kind, Stack};
use posenc_onnx::report::{Attention, AttentionKind, Encoding, Inspect, ModelSummary, Refusal};

use super::limits::limits;
use crate::columns::{Align, Columns, DASH};
use crate::number::{counted, grouped, ranges, rough};
use crate::terminal::{Palette, one_line};

const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;

/// The whole report.
pub(crate) fn text(report: &Inspect, palette: Palette) -> String {
    let mut text = model(&report.model, palette);
    section("Encodings", &mut text, palette);
    text += &encodings(&report.encodings).text_or_none(palette);
    text += &legends(&report.encodings, palette);
    text += &without(report, palette);
    section("Attention", &mut text, palette);
    text += &attention(&report.attention).text_or_none(palette);
    let is_open = |site: &Attention| Shape::of(site).heads.contains(&None);
    if report.attention.iter().any(is_open) {
        text += &legend(&format!("{DASH}: the graph does not determine it"), palette);
    }
    section("Limits", &mut text, palette);
    text += &limits(&report.limits).text_or_none(palette);
    if !report.warnings.is_empty() {
        section("Warnings", &mut text, palette);
        for warning in &report.warnings {
            text += &format!("  {}\n", palette.alert(one_line(warning)));
        }
    }
    if let Some(refused) = &report.refused {
        section("Rejected candidates", &mut text, palette);
        text += &self::refused(refused).text_or_none(palette);
    }
    text
}

/// A row for each candidate that was rejected.
pub(crate) fn refused(all: &[Refusal]) -> Columns {
    let mut columns = Columns::new(&[("at", LEFT), ("why", LEFT)]);
    for refusal in all {
        columns.row([refusal.at.clone(), refusal.why.clone()]);
    }
    columns
}

fn section(title: &str, text: &mut String, palette: Palette) {
    *text += &format!("\n{}\n", palette.bold(title));
}

fn legend(words: &str, palette: Palette) -> String {
    format!("  {}\n", palette.dim(words))
}

fn model(model: &ModelSummary, palette: Palette) -> String {
    let mut text = format!(
        "{}\n  {}\n",
        palette.bold(one_line(&model.path)),
        facts(model).join(" · ")
    );
    for hash in hashes(model) {
        text += &format!("  {}\n", palette.dim(hash));
    }
    text
}

/// What tells the file from others.
pub(super) fn hashes(model: &ModelSummary) -> impl Iterator<Item = String> {
    let fingerprint = format!("fingerprint {}", model.fingerprint);
    let sha256 = model.sha256.as_ref();
    let sha256 = sha256.map(|sha256| format!("sha256      {sha256}"));
    std::iter::once(fingerprint).chain(sha256)
}

/// What the file is, in a few words each.
pub(crate) fn facts(model: &ModelSummary) -> Vec<String> {
    let mut facts = opsets(model);
    facts.push(format!("IR {}", model.ir_version));
    if !model.producer.is_empty() {
        facts.push(one_line(&model.producer));
    }
    facts.push(counted(model.nodes, "node"));
    facts.push(format!("{} parameters", grouped(model.parameters)));
    if model.external_data {
        facts.push("external data".to_owned());
    }
    facts
}

/// The operator sets that a model imports.
pub(super) fn opsets(model: &ModelSummary) -> Vec<String> {
    let opset = |(domain, version): (&String, &i64)| match domain.as_str() {
        "" => format!("opset {version}"),
        domain => format!("{domain} {version}"),
    };
    model.opsets.iter().map(opset).collect()
}

/// What the table of encodings means, and what it lacks.
pub(crate) fn notes(report: &Inspect) -> Vec<String> {
    let plain = Palette::Plain;
    let text = legends(&report.encodings, plain) + &without(report, plain);
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// A row for each encoding.
pub(crate) fn encodings(encodings: &[Encoding]) -> Columns {
    let mut columns = Columns::new(&[
        ("kind", LEFT),
        ("stack", LEFT),
        ("layers", LEFT),
        ("sites", RIGHT),
        ("form", LEFT),
        ("max length", RIGHT),
        ("fit error", RIGHT),
        ("parameters", LEFT),
    ]);
    for e in encodings {
        let mut about = vec![e.kind.describe(&e.params)];
        about.extend(e.evidence.iter().cloned());
        about.retain(|a| !a.is_empty());
        let mut about = about.into_iter();
        columns.row([
            e.kind.to_string(),
            stack(e.stack),
            ranges(&e.layers),
            e.sites.to_string(),
            e.form.to_string(),
            e.max_length.map_or_else(String::new, |n| n.to_string()),
            e.fit_error.map_or_else(String::new, rough),
            about.next().unwrap_or_default(),
        ]);
        for more in about {
            columns.row([const { String::new() }; 7].into_iter().chain([more]));
        }
    }
    columns
}

/// An encoding in one line.
pub(crate) fn encoding(e: &Encoding) -> String {
    match e.kind.describe(&e.params) {
        about if about.is_empty() => e.kind.to_string(),
        about => format!("{} ({about})", e.kind),
    }
}

/// What the columns of encodings mean.
fn legends(encodings: &[Encoding], palette: Palette) -> String {
    let mut text = String::new();
    if encodings.iter().any(|e| e.fit_error.is_some()) {
        let words = "fit error: largest difference between the model's numbers and the formula";
        text += &legend(words, palette);
    }
    if encodings.iter().any(|e| e.kind == Kind::Unknown) {
        text += &format!(
            "  {}\n",
            palette.alert("unknown: depends on the position, but fits no known encoding")
        );
    }
    text
}

/// Layers whose self-attention has no encoding, in models where that of others has one.
fn without(report: &Inspect, palette: Palette) -> String {
    let mut text = String::new();
    if report.encodings.is_empty() {
        return text;
    }
    for of in [None, Some(Stack::Encoder), Some(Stack::Decoder)] {
        let has_encoding = |layer: &usize| {
            let mut entries = report.encodings.iter().filter(|e| e.stack == of);
            entries.any(|e| e.layers.contains(layer))
        };
        let sites = report.attention.iter();
        let own = sites.filter(|s| s.stack == of && s.kind == AttentionKind::SelfAttention);
        let mut layers: Vec<usize> = own.filter_map(|s| s.layer).collect();
        layers.retain(|layer| !has_encoding(layer));
        layers.dedup();
        if !layers.is_empty() {
            let noun = if layers.len() == 1 { "layer" } else { "layers" };
            let what = format!("{} {noun} {}: none found", stack(of), ranges(&layers));
            text += &format!("  {}\n", palette.dim(what.trim_start()));
        }
    }
    text
}

/// What the sites of one row have in common.
#[derive(PartialEq)]
struct Shape {
    stack: Option<Stack>,
    kind: AttentionKind,
    heads: [Option<usize>; 3],
    mask: String,
    past: bool,
    form: Form,
}

impl Shape {
    fn of(site: &Attention) -> Self {
        Self {
            stack: site.stack,
            kind: site.kind,
            heads: [site.heads, site.kv_heads, site.head_dim],
            mask: mask(site),
            past: site.past,
            form: site.form,
        }
    }

    /// A cell for each column of [`SHAPE`].
    fn cells(&self) -> [String; 7] {
        let [heads, kv_heads, head_dim] = self.heads.map(number);
        [
            self.kind.to_string(),
            heads,
            kv_heads,
            head_dim,
            self.mask.clone(),
            if self.past { "yes" } else { "" }.to_owned(),
            self.form.to_string(),
        ]
    }
}

/// The columns of a shape, behind those that say which sites have it.
const SHAPE: [(&str, Align); 7] = [
    ("kind", LEFT),
    ("heads", RIGHT),
    ("kv heads", RIGHT),
    ("head dim", RIGHT),
    ("mask", LEFT),
    ("cache", LEFT),
    ("form", LEFT),
];

/// A row for the sites of each shape.
pub(crate) fn attention(sites: &[Attention]) -> Columns {
    let mut groups: Vec<(Shape, Vec<&Attention>)> = vec![];
    for site in sites {
        let shape = Shape::of(site);
        match groups.iter_mut().find(|g| g.0 == shape) {
            Some(group) => group.1.push(site),
            None => groups.push((shape, vec![site])),
        }
    }
    let own = [("stack", LEFT), ("layers", LEFT), ("sites", RIGHT)];
    let mut columns = Columns::new(&[&own[..], &SHAPE].concat());
    for (shape, sites) in &groups {
        let layers: Vec<usize> = sites.iter().filter_map(|s| s.layer).collect();
        let own = [stack(shape.stack), ranges(&layers), sites.len().to_string()];
        columns.row(own.into_iter().chain(shape.cells()));
    }
    columns
}

/// A row for each attention site.
pub(crate) fn sites(sites: &[Attention]) -> Columns {
    let own = [("site", LEFT), ("stack", LEFT), ("layer", RIGHT)];
    let mut columns = Columns::new(&[&own[..], &SHAPE].concat());
    for site in sites {
        let own = [
            site.name.clone(),
            stack(site.stack),
            site.layer
                .map_or_else(String::new, |layer| layer.to_string()),
        ];
        columns.row(own.into_iter().chain(Shape::of(site).cells()));
    }
    columns
}

fn number(number: Option<usize>) -> String {
    number.map_or_else(|| DASH.to_owned(), |n| n.to_string())
}

/// The keys that are hidden from a query.
fn mask(site: &Attention) -> String {
    let mut masks = vec![];
    match site.causal {
        Some(true) => masks.push("causal".to_owned()),
        Some(false) => {}
        None => masks.push("causal or none".to_owned()),
    }
    masks.extend(site.window.map(|w| format!("window {w}")));
    if site.padding_mask {
        masks.push("padding".to_owned());
    }
    if masks.is_empty() {
        "none".to_owned()
    } else {
        masks.join(", ")
    }
}

fn stack(stack: Option<Stack>) -> String {
    stack.map_or_else(String::new, |s| s.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use posenc_encodings::params::Params;
    use posenc_onnx::report::{Limit, LimitCause, Refusal};
    use serde_json::json;

    use super::*;

    fn summary() -> ModelSummary {
        ModelSummary {
            path: "llama.onnx".into(),
            fingerprint: "0c93".repeat(16),
            sha256: None,
            ir_version: 8,
            opsets: BTreeMap::from([(String::new(), 17), ("com.microsoft".into(), 1)]),
            producer: "pytorch 2.15".into(),
            nodes: 1412,
            parameters: 1_235_814_400,
            external_data: true,
        }
    }

    fn site(layer: usize) -> Attention {
        Attention {
            name: format!("layers.{layer}"),
            stack: None,
            layer: Some(layer),
            kind: AttentionKind::SelfAttention,
            heads: Some(32),
            kv_heads: Some(8),
            head_dim: Some(64),
            causal: Some(true),
            window: None,
            padding_mask: true,
            past: true,
            form: Form::Ops,
        }
    }

    fn rope(layers: impl Iterator<Item = usize>, theta: f64) -> Encoding {
        let mut params = Params::new();
        params.insert("theta".into(), json!(theta));
        params.insert("head_dim".into(), json!(64));
        params.insert("rotary_dim".into(), json!(64));
        params.insert("layout".into(), json!("half"));
        params.insert("scaling".into(), json!(null));
        let mut rope = Encoding::new(Kind::Rope, None, Form::Ops, params);
        rope.layers = layers.collect();
        rope.sites = rope.layers.len();
        rope.fit_error = Some(1.25e-7);
        rope
    }

    #[test]
    fn a_decoder_with_two_thetas_and_windows() {
        let mut report = Inspect::new(summary());
        report.encodings = vec![
            rope((0..24).filter(|l| l % 6 != 5), 1e4),
            rope((0..24).filter(|l| l % 6 == 5), 1e6),
        ];
        report.attention = (0..24).map(site).collect();
        for local in report
            .attention
            .iter_mut()
            .filter(|a| a.layer.unwrap() % 6 != 5)
        {
            local.window = Some(512);
        }
        report.limits = vec![
            Limit {
                length: 131_072,
                cause: LimitCause::Cache,
                value: Some("model.rotary_emb.cos_cached".into()),
            },
            Limit {
                length: 2048,
                cause: LimitCause::StaticShape,
                value: None,
            },
        ];
        insta::assert_snapshot!(text(&report, Palette::Plain));
    }

    #[test]
    fn an_encoder_and_decoder_with_an_unknown_term() {
        let mut report = Inspect::new(ModelSummary {
            sha256: Some("ab".repeat(32)),
            external_data: false,
            ..summary()
        });
        let mut params = Params::new();
        params.insert("num_buckets".into(), json!(32));
        params.insert("max_distance".into(), json!(128));
        params.insert("bidirectional".into(), json!(true));
        let mut t5 = Encoding::new(Kind::T5Bias, Some(Stack::Encoder), Form::Ops, params);
        t5.layers = vec![0, 1];
        t5.sites = 2;
        let mut unknown = Encoding::new(
            Kind::Unknown,
            Some(Stack::Decoder),
            Form::Ops,
            Params::new(),
        );
        unknown.layers = vec![1];
        unknown.sites = 1;
        unknown.evidence = vec![
            "the bias varies along the keys but with no distance".into(),
            "no alibi: the bias is not linear".into(),
        ];
        report.encodings = vec![t5, unknown];
        report.attention = (0..2)
            .map(|layer| Attention {
                stack: Some(Stack::Encoder),
                causal: Some(false),
                past: false,
                ..site(layer)
            })
            .collect();
        report.attention.push(Attention {
            stack: Some(Stack::Decoder),
            kind: AttentionKind::Cross,
            causal: None,
            kv_heads: None,
            ..site(0)
        });
        report.warnings = vec!["two outputs are not read".into()];
        report.refused = Some(vec![Refusal {
            at: "decoder/Mul_7".into(),
            why: "the operands come from two sources".into(),
        }]);
        insta::assert_snapshot!(text(&report, Palette::Plain));
    }

    #[test]
    fn layers_without_an_encoding_are_named() {
        let mut report = Inspect::new(summary());
        report.encodings = vec![rope((0..8).filter(|l| l % 4 != 3), 1e4)];
        report.attention = (0..8).map(site).collect();
        assert_eq!(
            without(&report, Palette::Plain),
            "  layers 3,7: none found\n"
        );
        report.attention[3].kind = AttentionKind::Cross;
        assert_eq!(without(&report, Palette::Plain), "  layer 7: none found\n");
        report.encodings.clear();
        assert_eq!(without(&report, Palette::Plain), "");
    }

    #[test]
    fn a_model_without_attention() {
        let mut report = Inspect::new(summary());
        report.refused = Some(vec![]);
        insta::assert_snapshot!(text(&report, Palette::Plain));
    }
}
