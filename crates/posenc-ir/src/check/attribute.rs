//! Attributes: names are unique, and values have the declared type.

use crate::error::{Error, Result};
use crate::graph::{Graph, ScopeKind};
use crate::id::ScopeId;
use crate::node::Node;
use crate::proto::AttributeProto;
use crate::proto::attribute_proto::AttributeType;

/// Up to this number, attributes are compared pairwise; more are sorted.
const FEW: usize = 8;

/// Checks the attributes of a node of any operator.
pub(super) fn check(graph: &Graph, node: &Node) -> Result<()> {
    let attributes = node.attributes();
    if let Some(name) = duplicate(attributes) {
        return Err(Error::invalid(format!("attribute {name} is given twice")));
    }
    for a in attributes {
        let name = a.name();
        if a.ref_attr_name.as_deref().is_some_and(|r| !r.is_empty()) {
            if !in_function(graph, node.scope()) {
                let why = format!(
                    "attribute {name} refers to an attribute of a function, but is not in one"
                );
                return Err(Error::invalid(why));
            }
            continue;
        }
        let (declared, found) = (a.r#type(), content(a));
        if let Some(found) =
            found.filter(|h| declared != AttributeType::Undefined && *h != declared)
        {
            let (declared, found) = (words(declared), words(found));
            let why = format!("attribute {name} is declared as {declared} but contains {found}");
            return Err(Error::invalid(why));
        }
    }
    Ok(())
}

/// Whether attribute `i` of a node has the type that its operator defines.
pub(super) fn fits(node: &Node, i: usize, want: AttributeType) -> Result<()> {
    let a = &node.attributes()[i];
    let ty = match a.r#type() {
        AttributeType::Undefined => content(a),
        ty => Some(ty),
    };
    // A reference may omit its type.
    let got = ty.unwrap_or(want);
    let name = a.name();
    if got != want {
        let (want, got) = (words(want), words(got));
        let why = format!("attribute {name} must be {want}, not {got}");
        return Err(Error::invalid(why));
    }
    let is_reference = a.ref_attr_name.as_deref().is_some_and(|r| !r.is_empty());
    let bodies = node
        .indexed_bodies()
        .iter()
        .filter(|(at, _)| *at == i)
        .count();
    if want == AttributeType::Graph && bodies != 1 && !is_reference {
        let why = format!("attribute {name} contains {bodies} graphs instead of one");
        return Err(Error::invalid(why));
    }
    Ok(())
}

fn duplicate(attributes: &[AttributeProto]) -> Option<&str> {
    let names = attributes.iter().map(AttributeProto::name);
    if attributes.len() <= FEW {
        let mut all = names.enumerate();
        let before = |i| attributes[..i].iter().map(AttributeProto::name);
        return all
            .find(|(i, name)| before(*i).any(|n| n == *name))
            .map(|(_, name)| name);
    }
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.windows(2).find(|w| w[0] == w[1]).map(|w| w[0])
}

fn in_function(graph: &Graph, scope: ScopeId) -> bool {
    let mut at = scope;
    while let Some(parent) = graph.scope(at).parent() {
        at = parent;
    }
    matches!(graph.scope(at).kind(), ScopeKind::Function { .. })
}

/// The type of the attribute's value; `None` where all fields are empty, which zeros and empty lists
/// may be. Graphs are not kept in the message.
fn content(a: &AttributeProto) -> Option<AttributeType> {
    // Where several are filled, the declared type decides.
    let declared = a.filled().find(|ty| *ty == a.r#type());
    declared.or_else(|| a.filled().next())
}

fn words(ty: AttributeType) -> &'static str {
    match ty {
        AttributeType::Undefined => "nothing",
        AttributeType::Float => "a float",
        AttributeType::Int => "an integer",
        AttributeType::String => "a string",
        AttributeType::Tensor => "a tensor",
        AttributeType::Graph => "a graph",
        AttributeType::SparseTensor => "a sparse tensor",
        AttributeType::TypeProto => "a type",
        AttributeType::Floats => "a list of floats",
        AttributeType::Ints => "a list of integers",
        AttributeType::Strings => "a list of strings",
        AttributeType::Tensors => "a list of tensors",
        AttributeType::Graphs => "a list of graphs",
        AttributeType::SparseTensors => "a list of sparse tensors",
        AttributeType::TypeProtos => "a list of types",
    }
}
