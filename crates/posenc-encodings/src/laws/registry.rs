//! From the list of laws to the types that contain any of them.

/// Declares the modules of the laws, [`Scaling`](super::Scaling) and
/// [`LawName`](super::LawName).
macro_rules! laws {
    ($($module:ident::$law:ident,)+) => {
        $(mod $module;)+

        $(pub use $module::$law;)+

        /// A law with its parameters.
        ///
        /// The methods never panic; on parameters that [`Scaling::check`] refuses, the
        /// numbers are whatever the formula gives, NaN included.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)] // The laws say what they are.
        pub enum Scaling {
            /// Plain RoPE.
            None,
            $($law($law),)+
        }

        /// The name of a law.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // The laws say what they are.
        pub enum LawName {
            $($law,)+
        }

        impl $crate::words::Word for LawName {
            const ALL: &'static [Self] = &[$(Self::$law,)+];

            fn name(self) -> &'static str {
                self.facts().word
            }

            fn about(self) -> &'static str {
                self.facts().about
            }
        }

        impl LawName {
            /// What is known of the law before its parameters are.
            pub fn facts(self) -> &'static $crate::laws::facts::Facts {
                match self {
                    $(Self::$law => <$law as $crate::laws::law::Law>::facts(),)+
                }
            }

            pub(crate) fn fits(
                self,
                search: $crate::laws::identify::search::Search,
                samples: &$crate::laws::identify::evidence::Samples,
                candidates: &$crate::laws::identify::geometric::Candidates,
            ) -> Vec<$crate::laws::identify::found::Fit> {
                use $crate::laws::law::Law;
                match self {
                    $(Self::$law => $law::fits(search, samples, candidates),)+
                }
            }

            pub(crate) fn theta(
                self,
                samples: &$crate::laws::identify::evidence::Samples,
            ) -> Option<f64> {
                match self {
                    $(Self::$law => <$law as $crate::laws::law::Law>::theta(samples),)+
                }
            }
        }

        impl Scaling {
            /// The name of the law; absent for plain RoPE.
            pub fn law_name(&self) -> Option<LawName> {
                match self {
                    Self::None => None,
                    $(Self::$law(_) => Some(LawName::$law),)+
                }
            }

            pub(crate) fn law(&self) -> &dyn $crate::laws::law::Law {
                match self {
                    Self::None => &$crate::laws::plain::Plain,
                    $(Self::$law(law) => law,)+
                }
            }

            pub(crate) fn of_given(
                name: LawName,
                given: &mut $crate::laws::given::Chosen<'_>,
            ) -> Result<Self, $crate::laws::error::LawError> {
                use $crate::laws::law::Law;
                Ok(match name {
                    $(LawName::$law => Self::$law($law::from_given(given)?),)+
                })
            }

            pub(crate) fn of_hf(
                name: LawName,
                config: &mut $crate::hf::Reader<'_>,
            ) -> Result<Self, $crate::hf::HfConfigError> {
                use $crate::laws::law::Law;
                Ok(match name {
                    $(LawName::$law => Self::$law($law::from_hf(config)?),)+
                })
            }

            /// The parameters by their keys in records; `null` for plain RoPE.
            pub(crate) fn parameters(&self) -> serde_json::Result<serde_json::Value> {
                match self {
                    Self::None => Ok(serde_json::Value::Null),
                    $(Self::$law(law) => serde_json::to_value(law),)+
                }
            }

            /// The law of that name with parameters by their keys in records.
            pub(crate) fn from_parameters(
                name: LawName,
                parameters: serde_json::Value,
            ) -> serde_json::Result<Self> {
                Ok(match name {
                    $(LawName::$law => Self::$law(serde_json::from_value(parameters)?),)+
                })
            }
        }
    };
}
