//! What a command prints for programs: `-o json|yaml|name`, as kubectl does.

use clap::ValueEnum;
use serde_json::Value;

use super::target::Target;

/// A format for programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// JSON, a document an object
    Json,
    /// YAML, a document an object
    Yaml,
    /// TYPE/NAME, a line an object
    Name,
}

impl Output {
    /// An object in this format; documents that are put one after another stay apart.
    pub fn of(self, target: &Target, object: &Value) -> Result<String, String> {
        match self {
            Self::Name => Ok(format!("{target}\n")),
            Self::Json | Self::Yaml => self.document(object),
        }
    }

    /// A document in this format: JSON for `name`, which is for objects alone.
    pub fn document(self, value: &Value) -> Result<String, String> {
        let unsaid = |error: &dyn std::fmt::Display| format!("it cannot be written as {self:?}: {error}");
        match self {
            Self::Yaml => {
                serde_saphyr::to_string(value).map(|text| format!("---\n{text}")).map_err(|e| unsaid(&e))
            }
            Self::Json | Self::Name => {
                serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|e| unsaid(&e))
            }
        }
    }
}
