//! From parameters, files and the model to the encoding that each site gets.

use super::size::refusal;
use super::spec::{BiasSpec, EncodingSpec, Group, InputSpec, TermSpec};
use crate::attention::Site;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use crate::plan::numbers::{Init, Numbers};
use crate::report::LimitCause;
use crate::request::hf_config::{HfConfig, RopeRequest};
use crate::request::params::Params;
use crate::request::{Parameters, Request};
use posenc_encodings::bias::BiasFamily;
use posenc_encodings::encoding::{Common, GivenTensors, Learned, PlanError, SiteShape, Start};
use posenc_encodings::family::{Entry, Family};
use posenc_encodings::inferred::{self, Inferred};
use posenc_encodings::input_term::InputFamily;
use posenc_encodings::kind::Kind;
use posenc_encodings::rotation::RotationFamily;
use posenc_encodings::score_term::TermFamily;

/// Makes a kind of encoding out of parameters, files and what the model has.
pub(crate) struct Planner<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) request: &'a Request,
    pub(crate) parameters: &'a Parameters,
    pub(crate) params: Params,
    /// What the config of the request says.
    pub(crate) config: Option<HfConfig>,
    pub(crate) sites: &'a [usize],
    pub(crate) inferred: Vec<Inferred>,
}

impl Planner<'_> {
    /// What the chosen sites get.
    pub(crate) fn groups(&mut self, kind: Kind) -> Result<Vec<Group>, RewriteError> {
        let mut groups: Vec<Group> = vec![];
        if kind == Kind::None {
            return Ok(groups);
        }
        for &i in self.sites {
            let site = self.context.site(i);
            let new = self.encoding(kind, site)?;
            let stack = site.place.stack;
            let same = |g: &&mut Group| {
                // What is added before all sites is added before those of one stack.
                let is_own = self.context.site(g.sites[0]).place.stack == stack;
                (is_own || !kind.is_absolute()) && g.new == new
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.sites.push(i),
                None => groups.push(Group {
                    sites: vec![i],
                    new,
                }),
            }
        }
        Ok(groups)
    }

    fn encoding(&mut self, kind: Kind, site: &Site) -> Result<EncodingSpec, RewriteError> {
        let found_only = || {
            let why = format!("{kind} is found, not written; give another `to`");
            RewriteError::from(Refusal::invalid(why))
        };
        let family = kind.family().ok_or_else(found_only)?;
        match &family.entry {
            Entry::InputTerm(input) => self.input_term(family, input, site),
            Entry::Rotation(rotation) => self.rotation(rotation, site),
            Entry::ScoreBias(bias) => self.score_bias(family, bias, site),
            Entry::ScoreTerm(term) => self.score_term(family, term, site),
            Entry::FoundOnly => Err(found_only()),
        }
    }

    /// What families know of a site.
    fn shape(&self, site: &Site) -> SiteShape {
        SiteShape {
            heads: site.heads,
            head_dim: site.head_dim,
            causal: site.mask.causal == Some(true),
        }
    }

    /// Values that families share.
    pub(crate) fn common(&self) -> Common {
        let p = self.parameters;
        Common {
            theta: p.theta,
            layout: p.layout,
            rotary_dim: p.rotary_dim,
            max_length: p.max_length,
        }
    }

    fn refusal(&self, site: &Site, error: PlanError) -> RewriteError {
        refusal(error, || self.context.graph().place(site.node))
    }

    /// The tensors that the file of learned values has for a site.
    fn tensors(&self, family: &Family, site: &Site) -> GivenTensors {
        let mut tensors = GivenTensors::default();
        for learned in family.tensors {
            if let Some((name, tensor)) = self.params.at(site.place, learned.name) {
                tensors.set(learned, name, tensor);
            }
        }
        tensors
    }

    fn score_bias(
        &self,
        family: &Family,
        functions: &BiasFamily,
        site: &Site,
    ) -> Result<EncodingSpec, RewriteError> {
        let shape = self.shape(site);
        let tensors = self.tensors(family, site);
        let bias = (functions.plan)(&shape, &self.parameters.family, &tensors);
        let bias = bias.map_err(|e| self.refusal(site, e))?;
        let count = bias.tensors().len();
        let numbers = family.tensors.iter().take(count).enumerate();
        let tensors = numbers
            .map(|(i, learned)| self.numbers(site, learned, bias.start(i, &shape)))
            .collect();
        Ok(EncodingSpec::ScoreBias(BiasSpec { bias, tensors }))
    }

    fn input_term(
        &mut self,
        family: &Family,
        functions: &InputFamily,
        site: &Site,
    ) -> Result<EncodingSpec, RewriteError> {
        let tensors = self.tensors(family, site);
        let mut common = self.common();
        let mut term = (functions.plan)(&common, &tensors);
        if matches!(term, Err(PlanError::Missing("max-length"))) {
            common.max_length = Some(self.rows(site)?);
            term = (functions.plan)(&common, &tensors);
        }
        let term = term.map_err(|e| self.refusal(site, e))?;
        let tensors = family.tensors.iter().enumerate();
        let tensors = tensors
            .map(|(i, learned)| self.numbers(site, learned, term.start(i)))
            .collect();
        Ok(EncodingSpec::InputTerm(InputSpec { term, tensors }))
    }

    fn rotation(
        &self,
        functions: &RotationFamily,
        site: &Site,
    ) -> Result<EncodingSpec, RewriteError> {
        let mut common = self.common();
        if let Some(config) = self.configured(site)? {
            common.theta = Some(config.theta);
            let width = site.head_dim.and_then(|head| config.width_of(head));
            common.rotary_dim = common.rotary_dim.or(config.rotary_dim).or(width);
        }
        let rotation = (functions.plan)(&self.shape(site), &common);
        let rotation = rotation.map_err(|e| self.refusal(site, e))?;
        Ok(EncodingSpec::Rotation(rotation))
    }

    fn score_term(
        &self,
        family: &Family,
        functions: &TermFamily,
        site: &Site,
    ) -> Result<EncodingSpec, RewriteError> {
        let tensors = self.tensors(family, site);
        let term = (functions.plan)(&self.shape(site), &self.parameters.family, &tensors);
        let term = term.map_err(|e| self.refusal(site, e))?;
        let used = term.tensors();
        let tensors = family.tensors.iter().zip(used).enumerate();
        let tensors = tensors
            .map(|(i, (learned, dims))| dims.map(|_| self.numbers(site, learned, term.start(i))))
            .collect();
        Ok(EncodingSpec::ScoreTerm(TermSpec { term, tensors }))
    }

    /// The rotation of a layer by the configuration of the request.
    fn configured(&self, site: &Site) -> Result<Option<RopeRequest>, RewriteError> {
        let (Some(source), Some(config)) = (&self.request.hf_config, &self.config) else {
            return Ok(None);
        };
        if let Some(why) = config.doubt() {
            return Err(source.refuse(why).into());
        }
        let asked = config.rope_for(site.place.layer);
        Ok(asked.map_err(|e| source.refuse(e))?)
    }

    /// The numbers of a learned tensor: those of a file, or what it starts from.
    fn numbers(&self, site: &Site, learned: &Learned, start: Start) -> Numbers {
        if let Some(given) = self.params.at(site.place, learned.name) {
            return Numbers::given(given);
        }
        let std = start.deviation;
        let Some(seed) = self.parameters.seed.filter(|_| std > 0.0) else {
            return Numbers::Start(Init::constant(start.value));
        };
        // A layer that shares nothing with its neighbors has numbers of its own.
        let layer = if learned.shared {
            0
        } else {
            site.place.layer as u64
        };
        let stack = site.place.stack.map_or(0, |s| s as u64 + 1);
        let own = [layer, stack, learned.slot];
        let seed = own.iter().fold(seed, |s, n| {
            s.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n + 1)
        });
        Numbers::Start(Init::Normal { std, seed })
    }

    /// Rows of a table that neither a file nor the request gives.
    fn rows(&mut self, site: &Site) -> Result<usize, RewriteError> {
        let reaches = |f: &&Finding| f.sites.contains(&site.index);
        let table = self
            .context
            .found
            .findings
            .iter()
            .filter(reaches)
            .find_map(|f| match &f.encoding {
                Encoding::Learned(table) => Some(table.max_positions),
                _ => f.max_length,
            });
        let limits = &self.context.found.limits;
        let limit = limits
            .iter()
            .filter(|l| l.cause != LimitCause::Runtime)
            .map(|l| l.length);
        let (rows, source) = match (table, limit.min()) {
            (Some(rows), _) => (rows, "the table that it replaces"),
            (None, Some(rows)) => (rows, "the shortest of the graph's limits"),
            (None, None) => {
                let why = "cannot infer the table length: give `max-length`";
                return Err(Refusal::missing("max-length", why).into());
            }
        };
        let length = Inferred::new("max-length", rows, source);
        inferred::add(&mut self.inferred, length);
        Ok(rows)
    }
}
