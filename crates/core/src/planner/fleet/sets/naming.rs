//! Names new sets of nodes. A set's name is part of the names of its nodes and of their claims. A name is not reused as
//! long as any object with it exists, since the new set would take over what is left.

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use crate::api::names::{MAX_NODE_NAME, node_name, place_of};
use crate::api::{BuildId, RolloutHash, SetName};
use crate::planner::fleet::blocker::Blocker;
use crate::planner::fleet::decision::{FleetDecision, Start};
use crate::planner::fleet::facts::FleetFacts;
use crate::revision::hash::hex;

/// The number of digits of a hash in a set's name.
const DIGITS: usize = 5;
/// The number of names that are tried.
const MAX_TRIES: usize = 99;

/// Whether the set that a decision makes has a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Naming<'a> {
    /// The decision makes no set.
    NoSet,
    /// The set exists already.
    Known(SetName),
    /// A name has to be chosen that no object has.
    ToBeChosen(&'a Start),
}

/// Whether the set that this decision makes has a name.
#[must_use]
pub fn of<'a>(facts: &FleetFacts, decision: &'a FleetDecision, now: DateTime<Utc>) -> Naming<'a> {
    let (FleetDecision::Start(start)
    | FleetDecision::Supersede(start)
    | FleetDecision::CompleteAndStart(start)) = decision
    else {
        return Naming::NoSet;
    };
    of_start(facts, start, now)
}

/// Whether the set that a rollout makes has a name.
#[must_use]
pub fn of_start<'a>(facts: &FleetFacts, start: &'a Start, now: DateTime<Utc>) -> Naming<'a> {
    if !start.strategy.creates_set() {
        return Naming::NoSet;
    }
    if let Some(rollout) = facts.same_set(start) {
        return Naming::Known(rollout.entrant.clone());
    }
    facts.living_set(now).map_or(Naming::ToBeChosen(start), |set| Naming::Known(set.clone()))
}

/// The answer to the question which name is free for a new set.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SetNameAnswer {
    /// It was not asked.
    NotAsked,
    /// For a set with this target, this one.
    Free(RolloutHash, SetName),
    /// None, and why.
    None(Blocker),
}

/// A decision makes a set that has no name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotNamed;

impl SetNameAnswer {
    /// The name of the set that a decision makes, if it makes one.
    pub fn set_of(
        &self,
        facts: &FleetFacts,
        decision: &FleetDecision,
        now: DateTime<Utc>,
    ) -> Result<Option<SetName>, NotNamed> {
        match (of(facts, decision, now), self) {
            (Naming::NoSet, _) => Ok(None),
            (Naming::Known(set), _) => Ok(Some(set)),
            (Naming::ToBeChosen(start), Self::Free(target, set)) if start.target == *target => {
                Ok(Some(set.clone()))
            }
            (Naming::ToBeChosen(_), _) => Err(NotNamed),
        }
    }
}

/// The name of a set for this target, if it is free.
#[must_use]
pub fn first_choice(rollout_hash: &RolloutHash, build_id: Option<&BuildId>) -> SetName {
    let hash = rollout_hash.as_str();
    let digits = match build_id {
        None => hash.split_once(':').map_or(hash, |(_, digits)| digits).to_owned(),
        Some(build_id) => hex(&Sha256::digest(build_id.as_str())),
    };
    SetName::numbered(&digits.chars().take(DIGITS).collect::<String>(), 1)
}

/// The name for a new set, or a sentence that says why there is none. `exists`: the names of all objects in the
/// namespace that could conflict with a set's objects.
pub fn choose(
    deployment: &str,
    first_choice: &SetName,
    replicas: i32,
    exists: &[String],
) -> Result<SetName, String> {
    let names = (1..=MAX_TRIES).map(|number| SetName::numbered(first_choice.as_str(), number));
    let free = |set: &SetName| !exists.iter().any(|name| belongs(deployment, set, name));
    let Some(set) = names.into_iter().find(free) else {
        return Err(format!(
            "no name is free for a new set of nodes: objects named {deployment}-{first_choice} to \
             {deployment}-{first_choice}-{MAX_TRIES} exist; delete those that are not in use"
        ));
    };
    let longest = node_name(deployment, &set, (replicas - 1).max(0));
    if longest.len() > MAX_NODE_NAME {
        return Err(format!(
            "metadata.name: a node of the new set would be named {longest}, which has {} characters, and at most \
             {MAX_NODE_NAME} are allowed: delete the objects of earlier sets ({deployment}-{first_choice}…), use \
             InPlace, or create a NodeDeployment with a shorter name",
            longest.len()
        ));
    }
    Ok(set)
}

/// True if a name is that of an object of a set: a node, its StatefulSet or Service, its pod, or one of its claims.
fn belongs(deployment: &str, set: &SetName, name: &str) -> bool {
    let is_node = |name: &str| place_of(deployment, name).is_some_and(|(found, _)| found == *set);
    if is_node(name) {
        return true;
    }
    let Some(of_pod) = name.strip_suffix("-0") else { return false };
    let begin = format!("{deployment}-{set}-");
    let starts = of_pod.match_indices(&begin).map(|(at, _)| at);
    starts.filter(|at| *at == 0 || of_pod[..*at].ends_with('-')).any(|at| is_node(&of_pod[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(exists: &[&str]) -> SetName {
        let exists: Vec<String> = exists.iter().map(|n| (*n).to_owned()).collect();
        choose("db", &"1a2b3".into(), 3, &exists).unwrap()
    }

    #[test]
    fn set_name_derives_from_hash_or_build_id_hash() {
        assert_eq!(first_choice(&"v1:0123456789".into(), None), "01234");
        // printf v2 | sha256sum
        assert_eq!(first_choice(&"v1:0123456789".into(), Some(&"v2".into())), "fb04d");
    }

    #[test]
    fn name_with_existing_objects_is_not_reused() {
        assert_eq!(chosen(&[]), "1a2b3");
        for met in ["db-1a2b3-0", "db-1a2b3-17", "db-1a2b3-0-0", "data-db-1a2b3-2-0", "my-data-db-1a2b3-2-0"]
        {
            assert_eq!(chosen(&[met]), "1a2b3-2", "{met}");
        }
        assert_eq!(chosen(&["db-1a2b3-0", "data-db-1a2b3-2-0-0"]), "1a2b3-3");
    }

    #[test]
    fn similar_names_do_not_block_a_set_name() {
        for other in ["db-0", "db-1a2b3", "db-1a2b3-x", "xdb-1a2b3-0", "db-1a2b30-0", "data-db-1a2b3-0", "x"]
        {
            assert_eq!(chosen(&[other]), "1a2b3", "{other}");
        }
    }

    #[test]
    fn too_long_set_name_is_refused_with_a_message() {
        let name = "a".repeat(39);
        assert!(choose(&name, &"1a2b3".into(), 1000, &[]).is_ok());
        let taken = (1..12)
            .map(|n| format!("{name}-1a2b3{}-0", if n == 1 { String::new() } else { format!("-{n}") }));
        let sentence = choose(&name, &"1a2b3".into(), 1001, &taken.collect::<Vec<_>>()).unwrap_err();
        assert!(sentence.contains("at most 52") && sentence.contains("53 characters"), "{sentence}");
        assert!(sentence.starts_with("metadata.name: ") && sentence.contains("shorter"), "{sentence}");
    }

    #[test]
    fn longest_node_name_is_that_of_the_highest_ordinal() {
        let name = "a".repeat(44);
        assert!(choose(&name, &"1a2b3".into(), 10, &[]).is_ok(), "its node 9 has 52 characters");
        assert!(choose(&name, &"1a2b3".into(), 11, &[]).is_err(), "its node 10 has 53");
        assert!(choose(&name, &"1a2b3".into(), 0, &[]).is_ok());
    }

    #[test]
    fn exhausted_set_names_are_reported() {
        let taken =
            (1..=99).map(|n| if n == 1 { "db-1a2b3-0".to_owned() } else { format!("db-1a2b3-{n}-0") });
        let sentence = choose("db", &"1a2b3".into(), 1, &taken.collect::<Vec<_>>()).unwrap_err();
        assert!(sentence.starts_with("no name is free"), "{sentence}");
    }
}
