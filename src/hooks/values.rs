//! Placeholders in double braces in a hook's texts: their names, the points at which they exist, and their
//! substitution.

use std::fmt;

use crate::engine::sentence::some_of;

/// The name of a placeholder.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ValueName {
    /// The fleet's name.
    Fleet,
    /// The fleet's namespace.
    Namespace,
    /// The node's name.
    Node,
    /// The node's ordinal in its set.
    Ordinal,
    /// The name of the node's pod.
    Pod,
    /// The IP of the node's pod.
    PodIp,
    /// The image of the target's main container.
    Image,
    /// The rollout hash that the plan replaces.
    FromHash,
    /// The plan's rollout hash.
    TargetHash,
    /// The plan's ID.
    PlanId,
    /// The task's ID.
    TaskId,
    /// The node's set.
    Set,
}

impl ValueName {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Fleet,
        Self::Namespace,
        Self::Node,
        Self::Ordinal,
        Self::Pod,
        Self::PodIp,
        Self::Image,
        Self::FromHash,
        Self::TargetHash,
        Self::PlanId,
        Self::TaskId,
        Self::Set,
    ];

    /// The text between the braces.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Namespace => "namespace",
            Self::Node => "node",
            Self::Ordinal => "ordinal",
            Self::Pod => "pod",
            Self::PodIp => "podIP",
            Self::Image => "image",
            Self::FromHash => "fromHash",
            Self::TargetHash => "targetHash",
            Self::PlanId => "planID",
            Self::TaskId => "taskID",
            Self::Set => "set",
        }
    }

    /// The environment variable in a Job's containers.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Fleet => "WINDLASS_FLEET",
            Self::Namespace => "WINDLASS_NAMESPACE",
            Self::Node => "WINDLASS_NODE",
            Self::Ordinal => "WINDLASS_ORDINAL",
            Self::Pod => "WINDLASS_POD",
            Self::PodIp => "WINDLASS_POD_IP",
            Self::Image => "WINDLASS_IMAGE",
            Self::FromHash => "WINDLASS_FROM_HASH",
            Self::TargetHash => "WINDLASS_TARGET_HASH",
            Self::PlanId => "WINDLASS_PLAN_ID",
            Self::TaskId => "WINDLASS_TASK_ID",
            Self::Set => "WINDLASS_SET",
        }
    }

    fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.text() == text)
    }

    /// True if it exists only for a node.
    #[must_use]
    pub fn is_of_a_node(self) -> bool {
        matches!(self, Self::Node | Self::Ordinal | Self::Pod | Self::PodIp)
    }
}

impl fmt::Display for ValueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{{}}}}}", self.text())
    }
}

/// A piece of a text with placeholders.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// A placeholder.
    Value(ValueName),
}

/// A parsed text with placeholders.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Filled {
    /// Its pieces, in order.
    pub pieces: Vec<Piece>,
}

impl Filled {
    /// Parses a text. An error is the end of a sentence that begins with the field's name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            let inside = &rest[at + 2..];
            // A body may contain double braces that are no placeholder.
            let Some((name, after)) = inside.split_once("}}").filter(|(name, _)| is_a_word(name)) else {
                pieces.push(Piece::Text(rest[..at + 2].to_owned()));
                rest = inside;
                continue;
            };
            let Some(value) = ValueName::read(name) else {
                let known: Vec<String> = ValueName::ALL.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "has the unknown placeholder {{{{{name}}}}}; the placeholders are \
                    {}",
                    known.join(" ")
                ));
            };
            pieces.push(Piece::Text(rest[..at].to_owned()));
            pieces.push(Piece::Value(value));
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        Ok(Self { pieces })
    }

    /// Its placeholders, in order.
    pub fn values(&self) -> impl Iterator<Item = ValueName> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Value(name) => Some(*name),
            Piece::Text(_) => None,
        })
    }

    /// Substitutes the values, each converted by `write`. An error names those that are unknown.
    pub fn fill(&self, values: &Values, write: impl Fn(ValueName, &str) -> String) -> Result<String, String> {
        let missing: Vec<String> =
            self.values().filter(|name| values.get(*name).is_none()).map(|name| name.to_string()).collect();
        if !missing.is_empty() {
            let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
            return Err(format!("{} is not known", some_of(&missing)));
        }
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value(name) => write(*name, values.get(*name).unwrap_or_default()),
        };
        Ok(self.pieces.iter().map(piece).collect())
    }

    /// Substitutes the values unchanged.
    pub fn fill_plainly(&self, values: &Values) -> Result<String, String> {
        self.fill(values, |_, value| value.to_owned())
    }
}

/// True if it could be meant as a placeholder; anything else between braces is literal.
fn is_a_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' '))
}

/// The known values at a point.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Values {
    /// The fleet's name.
    pub fleet: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The node's name.
    pub node: Option<String>,
    /// The node's ordinal in its set.
    pub ordinal: Option<String>,
    /// The pod's name.
    pub pod: Option<String>,
    /// The pod's address.
    pub pod_ip: Option<String>,
    /// The image of the target's main container.
    pub image: Option<String>,
    /// The rollout hash that the plan replaces; empty if there is none.
    pub from_hash: Option<String>,
    /// The plan's rollout hash.
    pub target_hash: Option<String>,
    /// The plan's ID.
    pub plan_id: Option<String>,
    /// The task's ID.
    pub task_id: Option<String>,
    /// The node's set.
    pub set: Option<String>,
}

impl Values {
    /// The value of a placeholder, if known.
    #[must_use]
    pub fn get(&self, name: ValueName) -> Option<&str> {
        let value = match name {
            ValueName::Fleet => &self.fleet,
            ValueName::Namespace => &self.namespace,
            ValueName::Node => &self.node,
            ValueName::Ordinal => &self.ordinal,
            ValueName::Pod => &self.pod,
            ValueName::PodIp => &self.pod_ip,
            ValueName::Image => &self.image,
            ValueName::FromHash => &self.from_hash,
            ValueName::TargetHash => &self.target_hash,
            ValueName::PlanId => &self.plan_id,
            ValueName::TaskId => &self.task_id,
            ValueName::Set => &self.set,
        };
        value.as_deref()
    }

    /// The same text for each name.
    #[must_use]
    pub fn each(text: &str) -> Self {
        let mut values = Self::default();
        for name in ValueName::ALL {
            values.set(name, text);
        }
        values
    }

    /// Makes a value known.
    pub fn set(&mut self, name: ValueName, value: impl Into<String>) {
        let field = match name {
            ValueName::Fleet => &mut self.fleet,
            ValueName::Namespace => &mut self.namespace,
            ValueName::Node => &mut self.node,
            ValueName::Ordinal => &mut self.ordinal,
            ValueName::Pod => &mut self.pod,
            ValueName::PodIp => &mut self.pod_ip,
            ValueName::Image => &mut self.image,
            ValueName::FromHash => &mut self.from_hash,
            ValueName::TargetHash => &mut self.target_hash,
            ValueName::PlanId => &mut self.plan_id,
            ValueName::TaskId => &mut self.task_id,
            ValueName::Set => &mut self.set,
        };
        *field = Some(value.into());
    }

    /// The known values as variables for a Job's containers.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        ValueName::ALL.into_iter().filter_map(|name| Some((name.variable(), self.get(name)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values {
            fleet: Some("db".to_owned()),
            pod_ip: Some("10.0.0.7".to_owned()),
            from_hash: Some(String::new()),
            ..Values::default()
        }
    }

    fn fill(text: &str) -> Result<String, String> {
        Filled::parse(text)?.fill_plainly(&values())
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_are_kept() {
        let table = [
            ("", ""),
            ("plain", "plain"),
            ("http://{{podIP}}:8080/{{fleet}}", "http://10.0.0.7:8080/db"),
            ("{{fleet}}{{fleet}}", "dbdb"),
            ("from {{fromHash}}.", "from ."),
            ("{\"a\":{\"b\":1}}", "{\"a\":{\"b\":1}}"),
            ("up{pod=\"{{fleet}}\"}", "up{pod=\"db\"}"),
            ("{{\"a\":1}}", "{{\"a\":1}}"),
            ("{{{fleet}}}", "{{{fleet}}}"),
            ("{{fleet", "{{fleet"),
            ("a {{}} b", "a {{}} b"),
        ];
        for (text, filled) in table {
            assert_eq!(fill(text).as_deref(), Ok(filled), "{text}");
        }
    }

    #[test]
    fn unknown_placeholder_error_lists_the_known_ones() {
        for text in ["{{podip}}", "{{pod-ip}}", "{{ fleet }}", "x{{Fleet}}", "{{status.phase}}"] {
            let sentence = Filled::parse(text).unwrap_err();
            assert!(sentence.contains("unknown placeholder {{"), "{text}: {sentence}");
            assert!(sentence.contains("{{podIP}}") && sentence.contains("{{set}}"), "{sentence}");
        }
    }

    #[test]
    fn unavailable_values_are_named_in_the_error() {
        let sentence = fill("{{node}} and {{fleet}} and {{pod}}").unwrap_err();
        assert_eq!(sentence, "{{node}}, {{pod}} is not known");
    }

    #[test]
    fn each_value_has_a_unique_variable() {
        let mut variables: Vec<&str> = ValueName::ALL.iter().map(|name| name.variable()).collect();
        variables.sort_unstable();
        variables.dedup();
        assert_eq!(variables.len(), ValueName::ALL.len());
        let known = values();
        let known: Vec<(&str, &str)> = known.variables().collect();
        let expected =
            [("WINDLASS_FLEET", "db"), ("WINDLASS_POD_IP", "10.0.0.7"), ("WINDLASS_FROM_HASH", "")];
        assert_eq!(known, expected);
    }
}
