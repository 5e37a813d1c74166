//! Output for programs: `-o json|yaml|name`, as in kubectl.

use clap::ValueEnum;
use serde_json::Value;

use super::target::Target;

/// A format for programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// JSON, one document per object
    Json,
    /// YAML, one document per object
    Yaml,
    /// TYPE/NAME, one line per object
    Name,
}

impl Output {
    /// Formats an object. Several documents in a row stay separate.
    pub fn of(self, target: &Target, object: &Value) -> Result<String, String> {
        match self {
            Self::Name => Ok(format!("{target}\n")),
            Self::Json | Self::Yaml => self.document(object),
        }
    }

    /// Formats a document; `name`, which only objects have, prints JSON.
    pub fn document(self, value: &Value) -> Result<String, String> {
        let unwritable = |error: &dyn std::fmt::Display| format!("cannot format it as {self:?}: {error}");
        match self {
            Self::Yaml => {
                serde_saphyr::to_string(value).map(|text| format!("---\n{text}")).map_err(|e| unwritable(&e))
            }
            Self::Json | Self::Name => {
                serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|e| unwritable(&e))
            }
        }
    }
}
