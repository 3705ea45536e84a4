//! Nodes against what is known of their operators.

use rustc_hash::FxHashMap;

use super::imports::{Imports, Opsets, domain_name};
use super::warnings::{Cause, Warnings};
use super::{attribute, body};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::id::NodeId;
use crate::node::Node;
use crate::schema::{self, Count, Domain, Found, Parameter, Signature};

/// What a node's domain is here.
enum Meaning {
    /// The table knows this version of it.
    Known(&'static Domain, i64),
    /// The table does not know the domain.
    Foreign,
    /// The table ends before this version.
    Newer(&'static Domain, i64),
}

/// Checks every node; calls of `functions` are not this module's.
pub(super) fn check<'g>(
    graph: &'g Graph,
    imports: &Imports,
    is_call: impl Fn(NodeId) -> bool,
    warnings: &mut Warnings<'g>,
) -> Result<()> {
    let mut meanings: FxHashMap<(usize, &str), Meaning> = FxHashMap::default();
    for (id, node) in graph.nodes() {
        let at = |e: Error| e.at(graph.place(id));
        if node.op().is_empty() {
            return Err(at(Error::invalid("the node names no operator")));
        }
        attribute::check(graph, node).map_err(at)?;
        let (set, opsets) = imports.at(node.scope());
        let meaning = match meanings.entry((set, node.domain())) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(meaning(opsets, node.domain()).map_err(at)?)
            }
        };
        if is_call(id) {
            continue;
        }
        let place = || graph.place(id);
        let (domain, op) = (node.domain(), node.op());
        let name = domain_name(domain);
        match *meaning {
            Meaning::Foreign => warnings.of(Cause::Domain(domain), || {
                let text = format!("operators of {name} are not known and not checked");
                (place(), text)
            }),
            Meaning::Newer(known, version) => {
                warnings.of(Cause::Version(domain, version), || {
                    let newest = known.newest;
                    let text = format!(
                        "version {version} of {name} is not known, and its operators are not \
                         checked; {newest} is the newest that is"
                    );
                    (place(), text)
                });
            }
            Meaning::Known(known, version) => match known.find(op, version) {
                Found::Known(signature) => {
                    arity(node, signature).map_err(at)?;
                    body::check(graph, node, version).map_err(at)?;
                    let unknown = attributes(node, signature).map_err(at)?;
                    for attribute in unknown {
                        warnings.of(Cause::Attribute(domain, op, attribute), || {
                            let text =
                                format!("{op} of {name} {version} has no attribute {attribute}");
                            (place(), text)
                        });
                    }
                }
                Found::Unknown => warnings.of(Cause::Operator(domain, op), || {
                    let text = format!("{name} has no operator {op}; it is not checked");
                    (place(), text)
                }),
                Found::Later(since) => {
                    let why = format!(
                        "{op} came with version {since} of {name}, and version {version} is \
                         imported"
                    );
                    return Err(at(Error::invalid(why)));
                }
                Found::Gone(since) => {
                    let why = format!(
                        "{op} went with version {since} of {name}, and version {version} is \
                         imported"
                    );
                    return Err(at(Error::invalid(why)));
                }
            },
        }
    }
    Ok(())
}

fn meaning(opsets: &Opsets, domain: &str) -> Result<Meaning> {
    let Some(version) = opsets.get(domain).copied() else {
        let name = domain_name(domain);
        let why = format!("the operator is of {name}, of which no version is imported");
        return Err(Error::invalid(why));
    };
    Ok(match schema::domain(domain) {
        None => Meaning::Foreign,
        Some(known) if version > known.newest => Meaning::Newer(known, version),
        Some(known) => Meaning::Known(known, version),
    })
}

/// Whether input `i` of a node may not be left out, as far as the table tells.
pub(super) fn needs(imports: &Imports, node: &Node, i: usize) -> bool {
    let (_, opsets) = imports.at(node.scope());
    let signature = match meaning(opsets, node.domain()) {
        Ok(Meaning::Known(domain, version)) => domain.find(node.op(), version),
        _ => return false,
    };
    matches!(signature, Found::Known(s) if i < s.inputs.given)
}

fn arity(node: &Node, signature: &Signature) -> Result<()> {
    let op = node.op();
    let sides = [
        (node.inputs(), signature.inputs, "input"),
        (node.outputs(), signature.outputs, "output"),
    ];
    for (values, count, what) in sides {
        // Trailing empty names are nothing.
        let got = values
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |i| i + 1);
        let too_few = values.len() < count.least;
        if too_few || count.most.is_some_and(|most| got > most) {
            let got = if too_few { values.len() } else { got };
            let why = format!("{op} takes {} and has {got}", wanted(count, what));
            return Err(Error::invalid(why));
        }
    }
    let given = signature.inputs.given;
    if let Some(i) = node.inputs().iter().take(given).position(Option::is_none) {
        let why = format!("input {i} of {op} is left out, which {op} needs");
        return Err(Error::invalid(why));
    }
    if signature.outputs.least > 0 && node.outputs().iter().all(Option::is_none) {
        let why = format!("{op} gives nothing a name");
        return Err(Error::invalid(why));
    }
    Ok(())
}

/// `2 inputs`, `1 to 3 inputs`, `at least 1 input`
fn wanted(count: Count, what: &str) -> String {
    let s = |n: usize| if n == 1 { "" } else { "s" };
    match (count.least, count.most) {
        (least, None) => format!("at least {least} {what}{}", s(least)),
        (least, Some(most)) if least == most => format!("{most} {what}{}", s(most)),
        (least, Some(most)) => format!("{least} to {most} {what}s"),
    }
}

/// The attributes that the operator does not have; those that it has must be of its types, and
/// required ones there.
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
            "attribute {name} of {op} is missing"
        )));
    }
    let values = node.attributes().len() - unknown.len();
    if node.is("Constant") && values != 1 {
        let why = format!("Constant holds {values} values instead of one");
        return Err(Error::invalid(why));
    }
    Ok(unknown)
}
