//! External data of a rewritten model: kept, linked, copied or embedded, before the model appears.

mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use posenc_ir::{Encoded, ErrorKind, External, Model};
use posenc_onnx::request::ExternalData;

use crate::exit::Failure;
use crate::model;
use place::{How, Outcome, Placed};

/// Writes the model to `output`, its external data first, so that it appears only when all that
/// it needs is there.
///
/// # Errors
/// When data is absent that has to be read, or cannot be where the output would look for it; when
/// the output cannot be written. What was put beside it is taken away again then.
pub(super) fn write(
    model: &Model,
    input: &Path,
    output: &Path,
    mode: ExternalData,
) -> anyhow::Result<()> {
    let mut placed = Placed::default();
    let written = prepare(model, input, output, mode, &mut placed).and_then(|encoded| {
        let written = model.write_encoded(&encoded, output);
        Ok(written.map_err(|e| refusal(output, mode, &e))?)
    });
    if written.is_err() {
        placed.undo();
    }
    written
}

/// What to write, when its data is in place.
fn prepare(
    model: &Model,
    input: &Path,
    output: &Path,
    mode: ExternalData,
    placed: &mut Placed,
) -> anyhow::Result<Encoded> {
    let encoded = model.encode()?;
    // Also data that the edit has done away with is the input's.
    let all = model::named(input, model.external_data())?;
    if let Ok(real) = output.canonicalize() {
        let mut files = by_location(&all).into_values();
        if files.any(|e| model.external_file(e).is_ok_and(|file| file == real)) {
            return Err(lands_on_data(output));
        }
    }
    let used = model::named(input, model.external_in(&encoded))?;
    if used.is_empty() {
        return Ok(encoded);
    }
    let locations = by_location(&used);
    let home = folder(model.path().unwrap_or(Path::new(""))).canonicalize();
    let away = folder(output).canonicalize();
    let away = away.map_err(|e| Failure::usage(format!("{}: {e}", output.display())))?;
    // Data that the model's own link leads to is out of reach for an output that is none.
    let reaches = |external: &&External| {
        let file = model.external_file(external);
        file.map_or(true, |file| file.starts_with(&away))
    };
    let stays = home.is_ok_and(|home| home == away) && locations.values().all(reaches);
    for external in locations.values() {
        let lands = mode != ExternalData::Inline
            && Path::new(&external.location).file_name() == output.file_name()
            && folder(&away.join(&external.location)).canonicalize().ok() == Some(away.clone());
        if lands {
            return Err(lands_on_data(output));
        }
    }
    let how = match mode {
        ExternalData::Inline => return model::named(input, model.embedded(&encoded)),
        ExternalData::Keep | ExternalData::Auto if stays => return Ok(encoded),
        // The model that is replaced had this data; nothing else does.
        _ if stays && output.canonicalize().ok() == model_file(model) => return Ok(encoded),
        ExternalData::Keep => {
            let output = output.display();
            let sentence = format!(
                "{output}: --external-data keep works only where the data is in the same folder; give link, copy or inline"
            );
            return Err(Failure::usage(sentence).into());
        }
        ExternalData::Auto => How::LinkOrCopy,
        ExternalData::Link => How::Link,
        ExternalData::Copy => How::Copy,
    };
    let mut names = Names::new(output, locations.keys().copied());
    let mut moved = BTreeMap::new();
    for (location, external) in &locations {
        let from = model::named(input, model.external_file(external))?;
        let first = (!stays).then_some(*location);
        let Some(at) = names.place(&from, first, &away, how, placed)? else {
            let taken = away.join(names.own());
            let sentence = format!(
                "{}: is there already, with other data; remove it first",
                taken.display()
            );
            return Err(Failure::usage(sentence).into());
        };
        if at != *location {
            moved.insert((*location).to_owned(), at);
        }
    }
    if moved.is_empty() {
        return Ok(encoded);
    }
    Ok(model.relocated(&encoded, &moved)?)
}

fn lands_on_data(output: &Path) -> anyhow::Error {
    let output = output.display();
    let sentence = format!("{output}: is where the model's external data belongs; give another -o");
    Failure::usage(sentence).into()
}

/// Where data goes whose own name is taken: names of the output.
struct Names<'a> {
    output: OsString,
    /// Locations of the model, which are no names for other data.
    used: BTreeSet<&'a str>,
    next: usize,
}

impl<'a> Names<'a> {
    fn new(output: &Path, used: impl Iterator<Item = &'a str>) -> Self {
        Self {
            output: output.file_name().unwrap_or_default().to_owned(),
            used: used.collect(),
            next: 0,
        }
    }

    /// `<output>.data`, then `<output>.1.data` and so on.
    fn own(&self) -> String {
        let output = self.output.to_string_lossy();
        match self.next {
            0 => format!("{output}.data"),
            n => format!("{output}.{n}.data"),
        }
    }

    /// Puts `from` into `away`, by its own name or by the next of the output's; returns the one
    /// where it is now. `None` where other data has both.
    fn place(
        &mut self,
        from: &Path,
        first: Option<&str>,
        away: &Path,
        how: How,
        placed: &mut Placed,
    ) -> anyhow::Result<Option<String>> {
        if let Some(location) = first
            && placed.put(from, away, location, how)? != Outcome::Taken
        {
            return Ok(Some(location.to_owned()));
        }
        while self.used.contains(self.own().as_str()) {
            self.next += 1;
        }
        let own = self.own();
        if placed.put(from, away, &own, how)? == Outcome::Taken {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(own))
    }
}

/// The file that the model was read from.
fn model_file(model: &Model) -> Option<PathBuf> {
    model.path()?.canonicalize().ok()
}

/// Why the output cannot be written, and what helps.
fn refusal(output: &Path, mode: ExternalData, error: &posenc_ir::Error) -> Failure {
    if !matches!(error.kind(), ErrorKind::TooLarge { .. }) {
        return Failure::usage(error.to_string());
    }
    let output = output.display();
    Failure::usage(match mode {
        ExternalData::Inline => {
            format!("{output}: {error}; give --external-data keep, link or copy")
        }
        _ => format!("{output}: {error}; its weights need external data"),
    })
}

/// The folder that a file stands in.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// One payload of each file.
fn by_location(externals: &[External]) -> BTreeMap<&str, &External> {
    externals.iter().map(|e| (e.location.as_str(), e)).collect()
}

#[cfg(test)]
mod tests;
