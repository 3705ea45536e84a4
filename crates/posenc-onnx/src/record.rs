//! The `posenc.rope` metadata entry: which rotations a rewrite made, so that a second rewrite and a
//! verification know.

pub(crate) mod asked;
pub(crate) mod stretch;
pub(crate) mod swap;
pub(crate) mod written;

use posenc_ir::Model;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use posenc_encodings::laws::{Rope, Scaling};

const KEY: &str = "posenc.rope";

/// Sites with one rotation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SiteRecord {
    /// The sites, by their places in `Found::attention`.
    pub layers: Vec<usize>,
    /// Base θ before the scaling.
    pub theta: f64,
    /// Width of the rotated part of a head.
    pub rotary_dim: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// The law of the frequencies.
    pub scaling: Scaling,
    /// Factor on the whole score: DeepSeek's correction, else 1.
    #[serde(default = "one")]
    pub softmax_factor: f64,
}

fn one() -> f64 {
    1.0
}

impl SiteRecord {
    /// The embedding before the scaling.
    pub(crate) fn rope(&self) -> Rope {
        Rope {
            theta: self.theta,
            rotary_dim: self.rotary_dim,
            head_dim: self.head_dim,
        }
    }

    /// Whether both are written alike, but for their sites.
    fn is_like(&self, other: &Self) -> bool {
        self.rope() == other.rope()
            && (self.scaling == other.scaling || self.scaling.to_json() == other.scaling.to_json())
            && self.softmax_factor == other.softmax_factor
    }

    /// Reads what a rewrite wrote.
    ///
    /// # Errors
    /// In words, what is missing or impossible.
    fn read(site: &Value) -> Result<Self, String> {
        let site = Self::deserialize(site).map_err(|e| e.to_string())?;
        let check = site.scaling.check(&site.rope());
        check.map_err(|e| e.of_file())?;
        Ok(site)
    }
}

/// What an earlier rewrite wrote.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// The length that tables and buffers were extended to, where it was known.
    pub max_length: Option<usize>,
    sites: Vec<Value>,
    /// The same as rotations, or what is missing or impossible in them.
    rotations: Vec<Result<SiteRecord, String>>,
    /// The place in `sites` of each site.
    places: FxHashMap<usize, usize>,
}

impl Record {
    /// Whether any site was scaled.
    pub(crate) fn is_scaled(&self) -> bool {
        let is_scaled = |site: &Value| {
            let law = site["scaling"]["type"].as_str();
            law.is_some_and(|law| law != Scaling::None.name())
        };
        self.sites.iter().any(is_scaled)
    }

    /// The length before the scaling, where it was known.
    pub(crate) fn original_length(&self) -> Option<usize> {
        let length = |site: &Value| site["scaling"]["original_length"].as_u64();
        let length = self.sites.iter().find_map(length)?;
        usize::try_from(length).ok()
    }

    /// The rotation of a site, by its place in `Found::attention`; absent where none was
    /// written.
    ///
    /// # Errors
    /// In words, what is missing or impossible in it.
    pub(crate) fn site(&self, site: usize) -> Option<Result<&SiteRecord, &str>> {
        let rotation = &self.rotations[*self.places.get(&site)?];
        Some(rotation.as_ref().map_err(String::as_str))
    }

    /// The correction of the softmax scale that a site has; 1 where there is none.
    pub(crate) fn softmax_factor(&self, site: usize) -> f64 {
        let place = self.places.get(&site);
        let factor = place.and_then(|at| self.sites[*at]["softmax_factor"].as_f64());
        factor.unwrap_or(1.0)
    }

    /// The sites that have a rotation, by their places in `Found::attention`.
    pub(crate) fn sites(&self) -> Vec<usize> {
        self.sites.iter().flat_map(places).collect()
    }
}

/// The sites of an entry.
fn places(entry: &Value) -> impl Iterator<Item = usize> {
    let layers = entry["layers"].as_array().into_iter().flatten();
    let layers = layers.filter_map(Value::as_u64);
    layers.filter_map(|site| usize::try_from(site).ok())
}

/// The record of a model, where there is one that can be read.
pub(crate) fn record(model: &Model) -> Option<Record> {
    let entry: Value = serde_json::from_str(model.metadata(KEY)?).ok()?;
    let sites = entry.get("sites")?.as_array()?.clone();
    let max_length = entry["max_length"].as_u64();
    // Of two entries of one site, the first counts.
    let all = sites.iter().enumerate().rev();
    let all = all.flat_map(|(at, entry)| places(entry).map(move |site| (site, at)));
    Some(Record {
        max_length: max_length.and_then(|length| usize::try_from(length).ok()),
        places: all.collect(),
        rotations: sites.iter().map(SiteRecord::read).collect(),
        sites,
    })
}

/// Writes the record of a rewrite: the fingerprint of what was rewritten, the length that was made
/// room for, and the rotations, each with one site. Sites with one rotation are joined.
pub(crate) fn write(
    model: &mut Model,
    source: &str,
    max_length: Option<usize>,
    sites: impl IntoIterator<Item = SiteRecord>,
) {
    let mut joined: Vec<SiteRecord> = vec![];
    for site in sites {
        match joined.iter_mut().find(|other| other.is_like(&site)) {
            Some(other) => other.layers.extend(site.layers),
            None => joined.push(site),
        }
    }
    let entry = json!({
        "tool": concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")),
        "source": source,
        "max_length": max_length,
        "sites": joined,
    });
    model.set_metadata(KEY, entry.to_string());
}

/// The metadata entry of what was not read.
const UNREAD: &str = "posenc.unread";

/// Records what of the model was not read when it was rewritten all the same, one sentence each.
pub(crate) fn write_unread(model: &mut Model, unread: &[String]) {
    model.set_metadata(UNREAD, json!(unread).to_string());
}

/// What of a model was not read when it was rewritten.
pub(crate) fn read_unread(model: &Model) -> Vec<String> {
    let entry = model.metadata(UNREAD);
    let list = entry.and_then(|text| serde_json::from_str(text).ok());
    list.unwrap_or_default()
}

/// Records that no rotation was made.
pub(crate) fn clear(model: &mut Model, source: &str) {
    write(model, source, None, []);
}

#[cfg(test)]
mod tests {
    use posenc_encodings::laws::{Linear, Yarn};

    use super::*;

    fn model() -> Model {
        let text = "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                    test (float[batch] x) => (float[batch] y) {\n    y = Identity(x)\n}\n";
        Model::parse(text).unwrap()
    }

    fn site(layer: usize, scaling: Scaling) -> SiteRecord {
        SiteRecord {
            layers: vec![layer],
            theta: 1e4,
            rotary_dim: 8,
            head_dim: 16,
            scaling,
            softmax_factor: 1.0,
        }
    }

    fn version() -> String {
        format!("posenc-onnx {}", env!("CARGO_PKG_VERSION"))
    }

    #[test]
    fn a_record_is_written_to_the_byte_and_read_back() {
        let linear = || Scaling::Linear(Linear { factor: 4.0 });
        let sites = [site(0, linear()), site(1, Scaling::None), site(2, linear())];
        let mut model = model();
        write(&mut model, "abc", Some(256), sites);
        let want = r#","source":"abc","max_length":256,"sites":[{"layers":[0,2],"theta":10000.0,"rotary_dim":8,"head_dim":16,"scaling":{"factor":4.0,"type":"linear"},"softmax_factor":1.0},{"layers":[1],"theta":10000.0,"rotary_dim":8,"head_dim":16,"scaling":null,"softmax_factor":1.0}]}"#;
        let want = format!(r#"{{"tool":"{}"{want}"#, version());
        assert_eq!(model.metadata(KEY), Some(&*want));
        let read = record(&model).unwrap();
        assert_eq!(read.max_length, Some(256));
        assert!(read.is_scaled());
        let joined = SiteRecord {
            layers: vec![0, 2],
            ..site(0, linear())
        };
        assert_eq!(read.site(2), Some(Ok(&joined)));
        assert_eq!(read.site(1), Some(Ok(&site(1, Scaling::None))));
        assert_eq!(read.site(3), None);
        assert_eq!(read.original_length(), None);
        clear(&mut model, "abc");
        let want = format!(
            r#"{{"tool":"{}","source":"abc","max_length":null,"sites":[]}}"#,
            version()
        );
        assert_eq!(model.metadata(KEY), Some(&*want));
        assert!(!record(&model).unwrap().is_scaled());
    }

    #[test]
    fn sites_that_differ_in_anything_are_not_joined() {
        let yarn = Scaling::Yarn(Yarn::new(4.0, 64).unwrap());
        let other = SiteRecord {
            softmax_factor: 1.5,
            ..site(1, yarn.clone())
        };
        let mut model = model();
        write(&mut model, "", None, [site(0, yarn), other]);
        let read = record(&model).unwrap();
        assert_eq!(read.softmax_factor(0), 1.0);
        assert_eq!(read.softmax_factor(1), 1.5);
        assert_eq!(read.softmax_factor(2), 1.0);
        assert_eq!(read.original_length(), Some(64));
    }

    #[test]
    fn what_is_impossible_is_refused_in_words() {
        let cases = [
            (json!({"type": "linear"}), "missing field `factor`"),
            (json!({"type": "new"}), "no scaling of type new"),
            (
                json!({"type": "linear", "factor": 0.0}),
                "factor must be a finite number of at least 1, got 0",
            ),
        ];
        let read = |scaling: Value| {
            let mut site = serde_json::to_value(site(0, Scaling::None)).unwrap();
            site["scaling"] = scaling;
            let mut model = model();
            model.set_metadata(KEY, json!({"sites": [site]}).to_string());
            let read = record(&model).unwrap();
            read.site(0).unwrap().cloned().map_err(str::to_owned)
        };
        for (scaling, want) in cases {
            assert_eq!(read(scaling).unwrap_err(), want);
        }
        assert_eq!(read(Value::Null).unwrap().scaling, Scaling::None);
        let mut model = model();
        for text in ["", "[]", "{}", "{\"sites\": 4}"] {
            model.set_metadata(KEY, text.to_owned());
            assert_eq!(record(&model), None, "{text}");
        }
    }
}
