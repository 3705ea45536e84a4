//! Parameters as the report shows them.

use serde_json::{Map, Value};

/// Parameters by name, in the order in which they were inserted.
pub type Params = Map<String, Value>;
