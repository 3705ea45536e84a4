//! The operators of ONNX: their versions, and their numbers of inputs and outputs and their
//! attributes in each.
//!
//! The table is `schema/operators.txt`, which `cargo xtask schema` generates. It has the operators of ONNX and those
//! of ONNX Runtime.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::proto::attribute_proto::AttributeType;

/// The table.
const OPERATORS: &str = include_str!("schema/operators.txt");

static DOMAINS: LazyLock<FxHashMap<&str, Domain>> = LazyLock::new(|| parse(OPERATORS));

/// The operators that ONNX Runtime adds to ai.onnx.
pub(crate) fn added() -> Option<&'static Domain> {
    domain("ai.onnx of ONNX Runtime")
}

/// Whether the operators of a domain get inputs, outputs and attributes without another version.
pub(crate) fn grows(domain: &str) -> bool {
    domain.starts_with("com.microsoft")
}

/// The operators of one domain.
#[derive(Debug)]
pub(crate) struct Domain {
    /// The newest version in the table.
    pub(crate) newest: i64,
    /// By name, the oldest version first.
    operators: FxHashMap<&'static str, Vec<Operator>>,
}

/// An operator from one version of its domain on.
#[derive(Debug)]
pub(crate) struct Operator {
    /// The version.
    pub(crate) since: i64,
    /// Its signature; `None` where this version removes the operator.
    pub(crate) signature: Option<Signature>,
}

/// The inputs, outputs and attributes of an operator.
#[derive(Debug)]
pub(crate) struct Signature {
    /// Its inputs.
    pub(crate) inputs: Count,
    /// Its outputs.
    pub(crate) outputs: Count,
    /// Its attributes, by name.
    pub(crate) attributes: Vec<Parameter>,
}

/// The allowed numbers of inputs or outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// The number of leading ones that are required.
    pub(crate) required: usize,
    /// The fewest, with omitted ones.
    pub(crate) least: usize,
    /// The most; `None` for no limit.
    pub(crate) most: Option<usize>,
}

/// An attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its type.
    pub(crate) ty: AttributeType,
    /// Whether it must be present.
    pub(crate) required: bool,
}

/// An operator in a version of its domain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    /// It exists.
    Known(&'static Signature),
    /// It was added in this later version.
    Later(i64),
    /// It was removed in this version.
    Removed(i64),
    /// The domain has no operator of this name.
    Unknown,
}

/// The domain with this name, empty for ai.onnx; `None` where the table does not have it.
pub(crate) fn domain(name: &str) -> Option<&'static Domain> {
    DOMAINS.get(name)
}

/// Whether some version of ai.onnx has an operator of this name, or ONNX Runtime adds it there.
///
/// ```
/// assert!(posenc_ir::is_operator("Sigmoid") && !posenc_ir::is_operator("Sigmoidd"));
/// ```
#[must_use]
pub fn is_operator(name: &str) -> bool {
    let mut known = [domain(""), added()].into_iter().flatten();
    known.any(|domain| domain.operators.contains_key(name))
}

impl Domain {
    /// The operator as it is in `version` of the domain.
    pub(crate) fn find(&'static self, operator: &str, version: i64) -> Lookup {
        let Some(versions) = self.operators.get(operator) else {
            return Lookup::Unknown;
        };
        let known = versions.iter().rfind(|o| o.since <= version);
        match (known, versions.first()) {
            (Some(o), _) => match &o.signature {
                Some(signature) => Lookup::Known(signature),
                None => Lookup::Removed(o.since),
            },
            (None, Some(first)) => Lookup::Later(first.since),
            (None, None) => Lookup::Unknown,
        }
    }
}

/// Reads the table; comments are skipped.
fn parse(table: &'static str) -> FxHashMap<&'static str, Domain> {
    let mut domains: FxHashMap<&str, Domain> = FxHashMap::default();
    let (mut domain, mut operator) = ("", "");
    for line in table.lines() {
        if let Some((name, newest)) = header(line) {
            domain = name;
            let operators = FxHashMap::default();
            domains.insert(name, Domain { newest, operators });
        } else if let Some(version) = version(line) {
            if let Some(domain) = domains.get_mut(domain) {
                domain.operators.entry(operator).or_default().push(version);
            }
        } else {
            operator = line;
        }
    }
    domains
}

/// `[ai.onnx 23]`
fn header(line: &'static str) -> Option<(&'static str, i64)> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let (name, newest) = inner.rsplit_once(' ')?;
    let name = if name == "ai.onnx" { "" } else { name };
    Some((name, newest.parse().ok()?))
}

/// ` 13 2 1 axis:int!`
fn version(line: &'static str) -> Option<Operator> {
    let mut words = line.strip_prefix(' ')?.split(' ');
    let since = words.next()?.parse().ok()?;
    let inputs = words.next()?;
    if inputs == "deprecated" {
        let signature = None;
        return Some(Operator { since, signature });
    }
    let signature = Signature {
        inputs: count(inputs)?,
        outputs: count(words.next()?)?,
        attributes: words.map(parameter).collect::<Option<_>>()?,
    };
    Some(Operator {
        since,
        signature: Some(signature),
    })
}

/// `2`, `1-3`, `1+` or `0/2+`
fn count(word: &str) -> Option<Count> {
    let (required, range) = match word.split_once('/') {
        Some((required, range)) => (Some(required.parse().ok()?), range),
        None => (None, word),
    };
    let (least, most) = if let Some(least) = range.strip_suffix('+') {
        (least.parse().ok()?, None)
    } else if let Some((least, most)) = range.split_once('-') {
        (least.parse().ok()?, Some(most.parse().ok()?))
    } else {
        let exactly = range.parse().ok()?;
        (exactly, Some(exactly))
    };
    Some(Count {
        required: required.unwrap_or(least),
        least,
        most,
    })
}

/// `axis:int!`
fn parameter(word: &'static str) -> Option<Parameter> {
    let (name, ty) = word.split_once(':')?;
    let (ty, required) = match ty.strip_suffix('!') {
        Some(ty) => (ty, true),
        None => (ty, false),
    };
    let ty = match ty {
        "float" => AttributeType::Float,
        "int" => AttributeType::Int,
        "string" => AttributeType::String,
        "tensor" => AttributeType::Tensor,
        "graph" => AttributeType::Graph,
        "sparse_tensor" => AttributeType::SparseTensor,
        "type_proto" => AttributeType::TypeProto,
        "floats" => AttributeType::Floats,
        "ints" => AttributeType::Ints,
        "strings" => AttributeType::Strings,
        "tensors" => AttributeType::Tensors,
        "graphs" => AttributeType::Graphs,
        _ => return None,
    };
    Some(Parameter { name, ty, required })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(operator: &str, version: i64) -> &'static Signature {
        match domain("").unwrap().find(operator, version) {
            Lookup::Known(signature) => signature,
            other => panic!("{operator} {version}: {other:?}"),
        }
    }

    fn counts(required: usize, least: usize, most: Option<usize>) -> Count {
        Count {
            required,
            least,
            most,
        }
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let mut rows = 0;
        for line in OPERATORS.lines().filter(|l| !l.starts_with('#')) {
            if line.starts_with(' ') {
                assert!(version(line).is_some(), "{line}");
                rows += 1;
            } else if line.starts_with('[') {
                assert!(header(line).is_some(), "{line}");
            } else {
                assert!(!line.contains(' '), "{line}");
            }
        }
        let all = DOMAINS.values().flat_map(|d| d.operators.values());
        assert_eq!(all.map(Vec::len).sum::<usize>(), rows);
        assert!(rows > 300, "{rows} rows");
        for (name, newest) in [("", 23), ("ai.onnx.ml", 5)] {
            assert!(domain(name).unwrap().newest >= newest, "{name}");
        }
    }

    #[test]
    fn versions_of_an_operator_increase() {
        for (operator, versions) in DOMAINS.values().flat_map(|d| &d.operators) {
            assert!(
                versions.windows(2).all(|w| w[0].since < w[1].since),
                "{operator}"
            );
        }
    }

    #[test]
    fn known_signatures_are_those_of_the_standard() {
        assert_eq!(signature("Add", 17).inputs, counts(2, 2, Some(2)));
        assert_eq!(signature("Clip", 11).inputs, counts(1, 1, Some(3)));
        assert_eq!(signature("Clip", 6).inputs, counts(1, 1, Some(1)));
        assert_eq!(signature("Concat", 13).inputs, counts(0, 1, None));
        assert_eq!(signature("Loop", 17).inputs, counts(0, 2, None));
        let to = &signature("Cast", 13).attributes[0];
        assert_eq!((to.name, to.required), ("to", true));
        assert_eq!(to.ty, AttributeType::Int);
    }

    #[test]
    fn operators_are_added_and_removed_by_versions() {
        let onnx = domain("").unwrap();
        for (operator, version, want) in [
            ("RotaryEmbedding", 22, "Later(23)"),
            ("Upsample", 10, "Removed(10)"),
            ("GroupNormalization", 20, "Removed(18)"),
            ("Frobnicate", 17, "Unknown"),
            ("add", 17, "Unknown"),
            ("Add", 0, "Later(1)"),
        ] {
            assert_eq!(format!("{:?}", onnx.find(operator, version)), want);
        }
        signature("Upsample", 9);
        signature("GroupNormalization", 21);
        assert!(domain("com.example").is_none());
        assert!(domain("ai.onnx").is_none(), "its name is empty here");
    }
}
