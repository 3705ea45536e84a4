//! Nodes: whether they have the inputs, outputs and attributes of their operators.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::imports::{Imports, Opsets, domain_name};
use super::warnings::{Cause, Warnings};
use super::{attribute, body};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::id::NodeId;
use crate::node::{Node, Operator};
use crate::schema::{self, Count, Domain, Lookup, Parameter, Signature};

/// A domain that a node uses.
#[derive(Clone, Copy)]
enum OperatorSet {
    /// A version that the table knows.
    Known(&'static Domain, i64),
    /// Not in the table.
    Unknown,
    /// A later version than the table has.
    Newer(&'static Domain, i64),
}

impl OperatorSet {
    fn find(self, op: &str) -> Lookup {
        match self {
            Self::Known(domain, version) => domain.find(op, version),
            Self::Unknown | Self::Newer(..) => Lookup::Unknown,
        }
    }
}

/// Checks every node except calls of functions.
pub(super) fn check<'g>(
    graph: &'g Graph,
    imports: &Imports,
    is_call: impl Fn(NodeId) -> bool,
    warnings: &mut Warnings<'g>,
) -> Result<()> {
    let mut sets: FxHashMap<(usize, &str), OperatorSet> = FxHashMap::default();
    // Nodes share their operators, which are looked up once.
    let mut known: FxHashMap<(usize, *const Operator), (OperatorSet, Lookup)> =
        FxHashMap::default();
    for (id, node) in graph.nodes() {
        let at = |e: Error| e.at(graph.place(id));
        if node.op().is_empty() {
            return Err(at(Error::invalid("the node has no operator")));
        }
        attribute::check(graph, node).map_err(at)?;
        let (set, opsets) = imports.at(node.scope());
        let key = (set, Arc::as_ptr(&node.operator));
        let (of_domain, lookup) = match known.get(&key) {
            Some(found) => *found,
            None => {
                let of_domain = match sets.get(&(set, node.domain())) {
                    Some(of_domain) => *of_domain,
                    None => {
                        let found = assumed_or_imported(graph, id, (set, opsets), warnings);
                        let of_domain = found.map_err(at)?;
                        sets.insert((set, node.domain()), of_domain);
                        of_domain
                    }
                };
                let found = (of_domain, of_domain.find(node.op()));
                known.insert(key, found);
                found
            }
        };
        if is_call(id) {
            continue;
        }
        let place = || graph.place(id);
        let (domain, op) = (node.domain(), node.op());
        let name = domain_name(domain);
        match of_domain {
            OperatorSet::Unknown => warnings.of(Cause::Domain(domain), || {
                let text = format!("operators of {name} are unknown and not checked");
                (place(), text)
            }),
            OperatorSet::Newer(known, version) => {
                warnings.of(Cause::Version(domain, version), || {
                    let newest = known.newest;
                    let text = format!(
                        "version {version} of {name} is unknown, and its operators are not checked; \
                         the newest known version is {newest}"
                    );
                    (place(), text)
                });
            }
            OperatorSet::Known(known, version) => match lookup {
                Lookup::Known(signature) => {
                    against(graph, id, (signature, version), warnings).map_err(at)?;
                }
                Lookup::Unknown => match added(domain, op) {
                    Some(own) => against(graph, id, (own, version), warnings).map_err(at)?,
                    None => warnings.of(Cause::Operator(domain, op), || {
                        let text = format!("{name} has no operator {op}; the node is not checked");
                        (place(), text)
                    }),
                },
                Lookup::Later(since) if AHEAD.contains(&(domain, op)) => {
                    warnings.of(Cause::Operator(domain, op), || {
                        let text = format!(
                            "{op} is in {name} from version {since} on, and version {version} is \
                             imported: ONNX Runtime alone reads it"
                        );
                        (place(), text)
                    });
                    if let Lookup::Known(signature) = known.find(op, since) {
                        against(graph, id, (signature, since), warnings).map_err(at)?;
                    }
                }
                Lookup::Later(since) => {
                    let why = format!(
                        "{op} was added in version {since} of {name}, but version {version} is \
                         imported"
                    );
                    return Err(at(Error::invalid(why)));
                }
                Lookup::Removed(since) => {
                    let why = format!(
                        "{op} was removed in version {since} of {name}, but version {version} is \
                         imported"
                    );
                    return Err(at(Error::invalid(why)));
                }
            },
        }
    }
    Ok(())
}

/// Operators that ONNX Runtime reads in every version of their domain, since its optimizer writes them
/// whatever is imported.
const AHEAD: [(&str, &str); 1] = [("", "LayerNormalization")];

/// What is known of an operator that ONNX Runtime adds to ai.onnx.
fn added(domain: &str, op: &str) -> Option<&'static Signature> {
    let added = schema::added().filter(|_| domain.is_empty())?;
    match added.find(op, added.newest) {
        Lookup::Known(signature) => Some(signature),
        _ => None,
    }
}

/// Checks a node against what is known of its operator in a version.
fn against<'g>(
    graph: &'g Graph,
    id: NodeId,
    (signature, version): (&Signature, i64),
    warnings: &mut Warnings<'g>,
) -> Result<()> {
    let node = graph.node(id);
    let (domain, op) = (node.domain(), node.op());
    let name = domain_name(domain);
    let given = arity(node, signature);
    match given {
        Err(Arity::TooMany(why)) if schema::grows(domain) => {
            let text = format!("{why}: the operator is from a later version of ONNX Runtime");
            warnings.of(Cause::Operator(domain, op), || (graph.place(id), text));
        }
        Err(Arity::TooMany(why) | Arity::Wrong(why)) => return Err(Error::invalid(why)),
        Ok(()) => {}
    }
    body::check(graph, node, version)?;
    for attribute in attributes(node, signature)? {
        warnings.of(Cause::Attribute(domain, op, attribute), || {
            let text = format!("{op} of {name} {version} has no attribute {attribute}");
            (graph.place(id), text)
        });
    }
    Ok(())
}

/// The operator set of the domain of a node, with a warning where it is assumed.
fn assumed_or_imported<'g>(
    graph: &'g Graph,
    id: NodeId,
    (set, opsets): (usize, &Opsets),
    warnings: &mut Warnings<'g>,
) -> Result<OperatorSet> {
    let name = graph.node(id).domain();
    let Some(assumed) = default_of(set, opsets, name) else {
        return set_of(opsets, name);
    };
    let text = format!("{name} is not imported: some runtimes do not read this model");
    warnings.at(graph.place(id), text);
    Ok(assumed)
}

/// Domains whose operators ONNX Runtime reads in the newest version where the model imports none.
const ASSUMED: [&str; 3] = ["ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"];

/// The version that is assumed of a domain that the model does not import. Functions have to import
/// what they use.
fn default_of(set: usize, opsets: &Opsets, domain: &str) -> Option<OperatorSet> {
    let is_assumed = set == 0 && !opsets.is_empty() && !opsets.contains_key(domain);
    (is_assumed && ASSUMED.contains(&domain)).then(|| match schema::domain(domain) {
        Some(known) => OperatorSet::Known(known, known.newest),
        None => OperatorSet::Unknown,
    })
}

fn set_of(opsets: &Opsets, domain: &str) -> Result<OperatorSet> {
    let Some(version) = opsets.get(domain).copied() else {
        let name = domain_name(domain);
        let why = format!("the operator is in {name}, which is not imported");
        return Err(Error::invalid(why));
    };
    Ok(match schema::domain(domain) {
        None => OperatorSet::Unknown,
        Some(known) if version > known.newest => OperatorSet::Newer(known, version),
        Some(known) => OperatorSet::Known(known, version),
    })
}

/// Whether input `i` of a node is required, as far as it is known.
pub(super) fn requires(imports: &Imports, node: &Node, i: usize) -> bool {
    let (set, opsets) = imports.at(node.scope());
    let assumed = default_of(set, opsets, node.domain()).ok_or(());
    let Ok(of_domain) = assumed.or_else(|()| set_of(opsets, node.domain())) else {
        return false;
    };
    matches!(of_domain.find(node.op()), Lookup::Known(s) if i < s.inputs.required)
}

/// Inputs or outputs that an operator does not have.
enum Arity {
    /// More than are known.
    TooMany(String),
    /// Too few, or required ones omitted.
    Wrong(String),
}

fn arity(node: &Node, signature: &Signature) -> std::result::Result<(), Arity> {
    let op = node.op();
    let sides = [
        (node.inputs(), signature.inputs, "input"),
        (node.outputs(), signature.outputs, "output"),
    ];
    for (values, count, what) in sides {
        // Trailing empty names do not count.
        let got = values
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |i| i + 1);
        let too_few = values.len() < count.least;
        if too_few || count.most.is_some_and(|most| got > most) {
            let got = if too_few { values.len() } else { got };
            let why = format!("{op} needs {}, but has {got}", range(count, what));
            return Err(match too_few {
                true => Arity::Wrong(why),
                false => Arity::TooMany(why),
            });
        }
    }
    let given = signature.inputs.required;
    if let Some(i) = node.inputs().iter().take(given).position(Option::is_none) {
        let why = format!("required input {i} of {op} is omitted");
        return Err(Arity::Wrong(why));
    }
    if signature.outputs.least > 0 && node.outputs().iter().all(Option::is_none) {
        let why = format!("all outputs of {op} are omitted");
        return Err(Arity::Wrong(why));
    }
    Ok(())
}

/// `2 inputs`, `1 to 3 inputs`, `at least 1 input`
fn range(count: Count, what: &str) -> String {
    let s = |n: usize| if n == 1 { "" } else { "s" };
    match (count.least, count.most) {
        (least, None) => format!("at least {least} {what}{}", s(least)),
        (least, Some(most)) if least == most => format!("{most} {what}{}", s(most)),
        (least, Some(most)) => format!("{least} to {most} {what}s"),
    }
}

/// Checks the types of attributes, and that required ones are present; returns the names of those
/// that the operator does not have.
fn attributes<'n>(node: &'n Node, signature: &Signature) -> Result<Vec<&'n str>> {
    let mut unknown = vec![];
    for (i, given) in node.attributes().iter().enumerate() {
        let known = |p: &&Parameter| p.name == given.name();
        match signature.attributes.iter().find(known) {
            Some(parameter) => attribute::fits(node, i, parameter.ty)?,
            None => unknown.push(given.name()),
        }
    }
    let missing = |p: &&Parameter| p.required && node.attribute(p.name).is_none();
    if let Some(parameter) = signature.attributes.iter().find(missing) {
        let (op, name) = (node.op(), parameter.name);
        return Err(Error::invalid(format!(
            "required attribute {name} of {op} is missing"
        )));
    }
    let values = node.attributes().len() - unknown.len();
    if node.is("Constant") && values != 1 {
        let why = format!("Constant has {values} values instead of one");
        return Err(Error::invalid(why));
    }
    let parts = node.int("num_outputs").ok().flatten();
    if let Some(parts) = parts.filter(|_| node.is("Split")) {
        let outputs = node.outputs().len();
        if usize::try_from(parts) != Ok(outputs) {
            let why = format!("num_outputs of Split is {parts}, but it has {outputs} outputs");
            return Err(Error::invalid(why));
        }
    }
    Ok(unknown)
}
