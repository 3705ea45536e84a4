//! The names of the configurations in a folder.

use std::path::Path;

pub(super) const CONFIG: &str = "config.json";
pub(super) const GENAI: &str = "genai_config.json";
pub(super) const GENERATION: &str = "generation_config.json";
pub(super) const TOKENIZER: &str = "tokenizer_config.json";
pub(super) const SENTENCES: &str = "sentence_bert_config.json";

/// Whether a path has the name of a configuration.
pub(super) fn is_config(path: &Path) -> bool {
    let all = [CONFIG, GENAI, GENERATION, TOKENIZER, SENTENCES];
    all.iter()
        .any(|name| path.file_name() == Some(name.as_ref()))
}
