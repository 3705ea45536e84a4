//! Saving a model, its external data first: the model's file appears only when everything that it
//! names is in place.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::place::{Method, Outcome, Placed};
use super::policy::{ExternalData, PlaceProblem, SaveError, Saved};
use crate::encoded::Encoded;
use crate::error::ErrorKind;
use crate::file::folder;
use crate::model::Model;
use crate::stored::External;

impl Model {
    /// Saves the model to `path`, with its external data where `external_data` says.
    ///
    /// Files of external data keep their names within the output's folder. Where another file has
    /// the name, or the model shares the folder with its input, they are named after the output:
    /// `<output>.data`, `<output>.1.data` and so on. No file is replaced but `path` itself; where
    /// `path` is a symbolic link, the file that it leads to. See [`Model::write`] for how.
    ///
    /// # Errors
    /// When external data has to be read and is absent; when `path` is a symbolic link into another
    /// folder, and the model has external data; when a file of external data has no place,
    /// or would itself be replaced by the output; when the result is too large for one file; when
    /// a file cannot be written. The output is unchanged then, and what was created next to it is
    /// removed.
    pub fn save(
        &self,
        path: impl AsRef<Path>,
        external_data: ExternalData,
    ) -> Result<Saved, SaveError> {
        let given = path.as_ref();
        let path = given.canonicalize().unwrap_or_else(|_| given.to_owned());
        let mut placed = Placed::default();
        let saved = encode(self, &path, external_data, &mut placed).and_then(|encoded| {
            check_link(self, &encoded, given, &path)?;
            write(self, &encoded, &path)
        });
        match saved {
            Ok(()) => Ok(Saved {
                linked: placed.linked,
                created: placed.created,
            }),
            Err(error) => {
                placed.remove();
                Err(error)
            }
        }
    }
}

/// An output that is a link into another folder would be read with the data of either folder.
fn check_link(
    model: &Model,
    encoded: &Encoded,
    given: &Path,
    path: &Path,
) -> Result<(), SaveError> {
    let own = folder(given).canonicalize().ok();
    let stays = own == folder(path).canonicalize().ok();
    if stays || model.external_in(encoded)?.is_empty() {
        return Ok(());
    }
    Err(SaveError::place(given, PlaceProblem::LinkedOutput))
}

fn write(model: &Model, encoded: &Encoded, path: &Path) -> Result<(), SaveError> {
    model.write_encoded(encoded, path).map_err(|error| {
        SaveError::Write(match error.kind() {
            ErrorKind::TooLarge { .. } => error.at(path.display().to_string()),
            _ => error,
        })
    })
}

/// Puts the external data in place and returns the model that names it there.
fn encode(
    model: &Model,
    output: &Path,
    policy: ExternalData,
    placed: &mut Placed,
) -> Result<Encoded, SaveError> {
    let encoded = model.encode()?;
    check_input_data(model, output)?;
    let used = model.external_in(&encoded)?;
    if used.is_empty() {
        return Ok(encoded);
    }
    let files = by_location(&used);
    let canonical = folder(output).canonicalize();
    let target = canonical.map_err(|e| SaveError::io(output, e))?;
    if policy != ExternalData::Inline {
        check_names(&files, output, &target)?;
    }
    let stays = is_in_reach(model, &files, &target);
    let method = match policy {
        ExternalData::Inline => return Ok(model.embedded(&encoded)?),
        ExternalData::Keep if stays => return Ok(encoded),
        ExternalData::Auto if stays && !any_by_link(model, &files, &target) => return Ok(encoded),
        // The file that is replaced named this data already.
        _ if stays && output.canonicalize().ok() == model_file(model) => return Ok(encoded),
        ExternalData::Keep => return Err(SaveError::place(output, PlaceProblem::OtherFolder)),
        ExternalData::Auto | ExternalData::Copy => Method::Copy,
        ExternalData::Link => Method::Link,
    };
    let mut names = Names::new(output, files.keys().copied());
    let mut moved = BTreeMap::new();
    for (location, external) in &files {
        let from = model.external_file(external)?;
        let first = (!stays).then_some(*location);
        let new = names.place(&from, first, &target, method, placed)?;
        if new != *location {
            moved.insert((*location).to_owned(), new);
        }
    }
    if moved.is_empty() {
        return Ok(encoded);
    }
    Ok(model.relocated(&encoded, &moved)?)
}

/// The output must not replace a file that the input names, also where the edited model does not
/// name it any more.
fn check_input_data(model: &Model, output: &Path) -> Result<(), SaveError> {
    let all = model.external_data()?;
    let Ok(output_file) = output.canonicalize() else {
        return Ok(());
    };
    let mut files = by_location(&all).into_values();
    let is_output = |e: &External| model.external_file(e).is_ok_and(|file| file == output_file);
    if files.any(is_output) {
        return Err(SaveError::place(output, PlaceProblem::IsExternalData));
    }
    Ok(())
}

/// The output must not have the name that a file of external data gets in its folder.
fn check_names(
    files: &BTreeMap<&str, &External>,
    output: &Path,
    target: &Path,
) -> Result<(), SaveError> {
    for location in files.keys() {
        let same_name = Path::new(location).file_name() == output.file_name();
        let canonical = || folder(&target.join(location)).canonicalize().ok();
        if same_name && canonical().as_deref() == Some(target) {
            return Err(SaveError::place(output, PlaceProblem::IsExternalData));
        }
    }
    Ok(())
}

/// Whether a model in the folder `target` can name the files as the input does.
fn is_in_reach(model: &Model, files: &BTreeMap<&str, &External>, target: &Path) -> bool {
    let home = folder(model.path().unwrap_or(Path::new(""))).canonicalize();
    // Where the input is a symbolic link, its data may be in the folder that the link leads to.
    let reaches = |external: &&External| {
        let file = model.external_file(external);
        file.map_or(true, |file| file.starts_with(target))
    };
    home.is_ok_and(|home| home == target) && files.values().all(reaches)
}

/// Whether the folder `target` holds a file of the data under another name only: by a symbolic link,
/// which readers refuse.
fn any_by_link(model: &Model, files: &BTreeMap<&str, &External>, target: &Path) -> bool {
    let by_link = |external: &&External| {
        let named = external
            .relative()
            .ok()
            .map(|location| target.join(location));
        let file = model.external_file(external).ok();
        file.is_some() && file != named
    };
    files.values().any(by_link)
}

/// The file that the model was read from.
fn model_file(model: &Model) -> Option<PathBuf> {
    model.path()?.canonicalize().ok()
}

/// One tensor of each file.
fn by_location(externals: &[External]) -> BTreeMap<&str, &External> {
    externals.iter().map(|e| (e.location.as_str(), e)).collect()
}

/// Names for files of external data that cannot keep their own.
struct Names<'a> {
    output: OsString,
    /// Locations that the model names, which are no names for other data.
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
    fn name(&self) -> String {
        let output = self.output.to_string_lossy();
        match self.next {
            0 => format!("{output}.data"),
            n => format!("{output}.{n}.data"),
        }
    }

    /// Places the file `from` in the folder `target`, at `first` where that is given and free,
    /// else at the next name; returns its location.
    fn place(
        &mut self,
        from: &Path,
        first: Option<&str>,
        target: &Path,
        method: Method,
        placed: &mut Placed,
    ) -> Result<String, SaveError> {
        if let Some(location) = first
            && placed.put(from, target, location, method)? != Outcome::Occupied
        {
            return Ok(location.to_owned());
        }
        while self.used.contains(self.name().as_str()) {
            self.next += 1;
        }
        let name = self.name();
        if placed.put(from, target, &name, method)? == Outcome::Occupied {
            return Err(SaveError::place(target.join(name), PlaceProblem::Exists));
        }
        self.next += 1;
        Ok(name)
    }
}

#[cfg(test)]
mod tests;
