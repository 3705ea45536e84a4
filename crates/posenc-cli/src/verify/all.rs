//! `verify --all`: the models of a project and their rewrites.

use std::path::Path;

use posenc_ir::diff::Diff;
use posenc_onnx::Model;
use posenc_onnx::report::{SiteCheck, Verify};
use posenc_onnx::verify::Bisect;

use super::cases::{Case, How, Output, finish, open};
use super::project::{FILE, Project, Settings, Wanted, is_same};
use crate::exit::{Exit, Failure};
use crate::places::Search;
use crate::progress::Progress;
use crate::terminal::Terminal;
use crate::{files, model, rewrite};

/// Verifies every model and every rewrite of the project of this folder.
pub(super) fn run(
    (flags, bisect): (&Settings, Bisect),
    output: &Output<'_>,
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
    if let Some(file) = output.junit {
        files::check_report(file, &read)?;
    }
    let progress = Progress::start(terminal, "verifying".to_owned());
    let mut cases = vec![];
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
                cases.push(Case::of(path, None, Err(error)));
                let why = || anyhow::anyhow!("{} was not read", path.display());
                let lost = wanted
                    .iter()
                    .map(|w| Case::of(&w.output, Some(path), Err(why())));
                cases.extend(lost);
                continue;
            }
        };
        let alone = model::named(&entry.path, how.verify(&read, None));
        cases.push(Case::of(&entry.path, None, alone));
        for wanted in &wanted {
            progress.now(format!("verifying {}", wanted.output.display()));
            let own = wanted.verify.clone();
            let own = own.map(|own| of_model.clone().or(own).or(flags.clone()));
            let own = own
                .map(|settings| How::open(bisect, settings, search))
                .transpose()?;
            let how = own.as_ref().unwrap_or(&how);
            let verified = model::named(&wanted.output, how.rewritten(wanted, &read));
            cases.push(Case::of(&wanted.output, Some(&entry.path), verified));
        }
    }
    drop(progress);
    finish(cases, output, terminal)
}

impl How {
    /// The file of a rewrite, which has to be what the rewrite makes; where there is none, what it makes.
    fn rewritten(&self, wanted: &Wanted, original: &Model) -> anyhow::Result<Verify> {
        let made = rewrite::in_memory(&wanted.args, original)?;
        if !wanted.output.exists() {
            let made = Model::checked(made.into_ir())?;
            return self.verify(&made, Some(original));
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
        Ok(report)
    }
}
