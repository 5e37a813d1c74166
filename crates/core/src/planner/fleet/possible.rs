//! Finds update strategies that cannot be carried out, as far as the spec alone shows it.

use crate::api::names::ANNOTATION_RESTART_ON;
use crate::api::{NodeDeploymentSpec, StrategyType};
use crate::revision::config;

/// Why a rollout with this spec cannot start, in a sentence; `None` if it can. The API server rejects most such specs.
/// This finds those that were stored before.
#[must_use]
pub fn why_not(spec: &NodeDeploymentSpec) -> Option<String> {
    let strategy = &spec.update_strategy;
    match config::references(&spec.template.spec.pod_template) {
        Err(sentence) => return Some(sentence),
        // A Secret that is renewed must not make the old nodes halt.
        Ok(named) if !named.is_empty() && strategy.strategy() == Some(StrategyType::HardFork) => {
            return Some(format!(
                "template: annotation {ANNOTATION_RESTART_ON} is not possible with HardFork, where each new template halts \
                 the old nodes: remove it"
            ));
        }
        Ok(_) => {}
    }
    match strategy.strategy() {
        None => Some(format!(
            "updateStrategy.type: {} is not known to this version of Windlass; use InPlace, BlueGreen or HardFork",
            strategy.type_
        )),
        Some(StrategyType::HardFork) if spec.halt_height() == 0 => Some(
            "updateStrategy.hardFork.haltHeight: HardFork needs the height at which the old nodes halt".to_owned(),
        ),
        // Windlass would never know the height of the nodes.
        Some(StrategyType::HardFork) if !spec.template.spec.has_sidecar_address() => Some(
            "template.spec.sidecar: HardFork needs a sidecar that reports the height of a node: set its image, with \
             --height-url in its args, or its url"
                .to_owned(),
        ),
        Some(_) => None,
    }
}
