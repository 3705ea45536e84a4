//! `verify --all`: the models of a project and their rewrites.

use std::path::Path;

use posenc_ir::diff::Diff;
use posenc_onnx::Model;
use posenc_onnx::report::{SiteCheck, Verify};
use posenc_onnx::verify::Bisect;

use super::case::Case;
use super::cases::{Cases, How, Output, open};
use super::project::{FILE, Project, Settings, Wanted, is_same};
use crate::exit::{Exit, Failure};
use crate::places::Search;
use crate::progress::Progress;
use crate::terminal::Terminal;
use crate::{model, rewrite};

/// Verifies every model and every rewrite of the project of this folder.
pub(super) fn run(
    (flags, bisect): (&Settings, Bisect),
    output: Output<'_>,
    search: &Search,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    let project = Project::read()?;
    let mut read: Vec<&Path> = project.files().collect();
    if let Some(twice) = read
        .iter()
        .enumerate()
        .find(|(at, path)| read[..*at].iter().any(|other| is_same(other, path)))
    {
        let why = format!("{} is named twice", twice.1.display());
        return model::named(Path::new(FILE), Err(Failure::usage(why)));
    }
    read.push(Path::new(FILE));
    output.check(&read)?;
    let progress = Progress::start(terminal, "verifying".to_owned());
    let mut cases = Cases::new(output);
    for entry in &project.models {
        let settings = entry.verify.as_ref().unwrap_or(&project.verify);
        let of_model = settings.clone();
        let settings = of_model.clone().or(flags.clone());
        let wanted = entry.rewrites()?;
        progress.now(format!("verifying {}", entry.path.display()));
        let how = How::open(bisect, settings, search)?;
        let read = open(&entry.path);
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                let path = &entry.path;
                cases.push(Case::of(path, None, Err(error)), &[], &how.runtimes);
                for lost in &wanted {
                    let why = anyhow::anyhow!("{} was not read", path.display());
                    let case = Case::of(&lost.output, Some(path), Err(why));
                    cases.push(case, &[], &how.runtimes);
                }
                continue;
            }
        };
        let alone = model::named(&entry.path, how.verify(&read, None));
        let original = (&*entry.path, &read);
        let case = Case::of(&entry.path, None, alone);
        cases.push(case, &[original], &how.runtimes);
        for wanted in &wanted {
            progress.now(format!("verifying {}", wanted.output.display()));
            let own = wanted.verify.clone();
            let own = own.map(|own| of_model.clone().or(own).or(flags.clone()));
            let own = own
                .map(|settings| How::open(bisect, settings, search))
                .transpose()?;
            let how = own.as_ref().unwrap_or(&how);
            let verified = model::named(&wanted.output, how.rewritten(wanted, &read));
            let (made, verified) = match verified {
                Ok((made, report)) => (Some(made), Ok(report)),
                Err(error) => (None, Err(error)),
            };
            let made = made.iter().map(|made| (&*wanted.output, made));
            let shown: Vec<_> = std::iter::once(original).chain(made).collect();
            let case = Case::of(&wanted.output, Some(&entry.path), verified);
            cases.push(case, &shown, &how.runtimes);
        }
    }
    drop(progress);
    cases.finish(terminal)
}

impl How {
    /// The file of a rewrite, which has to be what the rewrite makes; where there is none, what it makes.
    fn rewritten(&self, wanted: &Wanted, original: &Model) -> anyhow::Result<(Model, Verify)> {
        let made = rewrite::in_memory(&wanted.args, original)?;
        if !wanted.output.exists() {
            let made = Model::checked(made.into_ir())?;
            let report = self.verify(&made, Some(original))?;
            return Ok((made, report));
        }
        let file = open(&wanted.output)?;
        let differs = !Diff::between(made.as_ir(), file.as_ir())?.is_empty();
        let mut report = self.verify(&file, Some(original))?;
        report.sites.insert(
            0,
            SiteCheck {
                site: wanted.output.display().to_string(),
                quantity: "rewrite".to_owned(),
                max_error: (!differs).then_some(0.0),
                bound: 0.0,
                ok: !differs,
            },
        );
        report.ok &= !differs;
        if differs {
            report.warnings.push(format!(
                "{} is not what the rewrite makes of the model now; write it again",
                wanted.output.display()
            ));
        }
        Ok((file, report))
    }
}
