//! Flags for the parameters of families, as these declare them.

use clap::{ArgMatches, Command};
use posenc_encodings::families;
use posenc_encodings::param::{Given, Param};

use crate::param;

/// The parameters of families that were given.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyArgs(pub(super) Given);

/// A parameter of one name, with the words of the families that have it.
struct Shared {
    param: &'static Param,
    families: Vec<(&'static str, &'static Param)>,
}

impl Shared {
    /// Every parameter, in the order of the families.
    fn all() -> Vec<Self> {
        let mut all: Vec<Self> = vec![];
        for family in families::all() {
            for param in family.params {
                let own = (family.word, param);
                match all.iter_mut().find(|s| s.param.name == param.name) {
                    Some(shared) => shared.families.push(own),
                    None => all.push(Self {
                        param,
                        families: vec![own],
                    }),
                }
            }
        }
        all
    }
}

impl clap::Args for FamilyArgs {
    fn augment_args(command: Command) -> Command {
        let command = command.next_help_heading("Table and bias parameters");
        let flag = |shared: Shared| param::flag(shared.param, &shared.families);
        command.args(Shared::all().into_iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for FamilyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut all = Self::default();
        all.update_from_arg_matches(matches)?;
        Ok(all)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for shared in Shared::all() {
            if let Some(value) = param::value(shared.param, matches) {
                self.0.set(shared.param, value);
            }
        }
        Ok(())
    }
}
